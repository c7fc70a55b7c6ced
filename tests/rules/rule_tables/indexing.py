"""Indexing: what is taken in full is parallel, where positions are picked a split is a sum, the rest stays whole."""

import jax
import jax.numpy as jnp
from jax import lax

from rule_tables import row

ANY = "sum max min"
ONE = f"0:{ANY}"
INT = jnp.int32

row("slice", lambda x: x[1:], [(4, 8)], "wp -> wp", passes=ONE)
row("slice", lambda x: x[::2, 1::4], [(4, 8)], "pp -> pp", passes=ONE)
row("slice", lambda x: x[1::2, :7:2], [(5, 8)], "wp -> wp", passes=ONE)
row(
    "pad",
    lambda x: lax.pad(x, 0.0, ((0, 0, 0), (1, 2, 3), (1, 1, 0))),
    [(4, 8, 6)],
    "ppw,  -> ppw",
    passes=f"0+1:{ANY}",
)
row("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i, i, i), (4, 1, 2)), [(4, 8, 6), ((), INT)],
    "prw, , ,  -> pww", passes=ONE)  # fmt: skip
row("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i, i), (4, 1)), [((4, 8), "bool"), ((), INT)], "pw, ,  -> pw",
    passes="0:max min")  # fmt: skip
row("dynamic_update_slice", lambda x, u, i: lax.dynamic_update_slice(x, u, (i, i, i)),
    [(4, 8, 6), (4, 1, 2), ((), INT)], "ppw, pww, , ,  -> ppw", passes=f"0+1:{ANY}")  # fmt: skip
row("iota", lambda: lax.broadcasted_iota(INT, (4, 8), 1), [], " -> pp")


def gather(fn, args, dims, passes=ONE):
    row("gather", fn, args, dims, passes=passes)


gather(lambda x, i: x[i], [(8, 4), ((2, 6), INT)], "rp, ppw -> ppp")
gather(lambda x, i: x.at[i].get(mode="clip"), [(8, 4), ((6,), INT)], "rp, pw -> pp")
gather(lambda x, i: x.at[i].get(mode="fill", fill_value=7), [(8, 4), ((6,), INT)], "rp, pw -> pp", "0:max min")
gather(lambda x, i: x.at[i].get(mode="fill"), [((8, 4), INT), ((6,), INT)], "rp, pw -> pp", "0:max min")
gather(lambda x, i: x[:, i], [(4, 8), ((6,), INT)], "pr, pw -> pp")
gather(lambda x, i, j: x[i, j], [(4, 8, 6), ((2,), INT), ((2,), INT)], "rrp, pw -> pp")
gather(lambda x, i: jnp.take_along_axis(x, i, 1), [(4, 8), ((4, 2), INT)], "pr, ppw -> pp")
gather(lambda x, i: x[i], [((8,), "bool"), ((6,), INT)], "w, pw -> p", "0:max min")
gather(lambda x, i: x[i], [((8,), "key"), ((6,), INT)], "w, pw -> p", "")
gather(jax.vmap(lambda x, i: lax.dynamic_slice(x, (i, 0), (2, 4))), [(6, 8, 4), ((6,), INT)], "pwp, pw -> pwp")

ROWS = [(8, 4), ((6,), INT), (6, 4)]
row("scatter-add", lambda x, i, u: x.at[i].add(u), ROWS, "pp, rw, rp -> pp", passes="0+2")
row("scatter-sub", lambda x, i, u: x.at[i].subtract(u), ROWS, "pp, rw, rp -> pp", passes="0+2")
row("scatter-max", lambda x, i, u: x.at[i].max(u), ROWS, "pp, xw, xp -> pp", passes="0:max, 2:max, 0+2:max")
row("scatter-min", lambda x, i, u: x.at[i].min(u), ROWS, "pp, nw, np -> pp", passes="0:min, 2:min, 0+2:min")
row("scatter-mul", lambda x, i, u: x.at[i].multiply(u), ROWS, "pp, ww, wp -> pp", passes="0")
row("scatter", lambda x, i, u: x.at[i].set(u), ROWS, "pp, ww, wp -> pp")
row("scatter", lambda x, i, u: x.at[i].set(u), [(8, 4), ((), INT), (4,)], "pp, w, p -> pp", passes=f"0+2:{ANY}")
row("scatter-add", lambda x, i, u: x.at[:, i].add(u), [(4, 8), ((6,), INT), (4, 6)], "pp, rw, pr -> pp", passes="0+2")
row("scatter-add", lambda x, u: x.at[2:4].add(u), [(8, 4), (2, 4)], "wp, w, wp -> wp", passes="0+2")
row("scatter-add", jax.grad(lambda x, i: (jnp.take_along_axis(x, i, 1) ** 2).sum()), [(4, 8), ((4, 2), INT)],
    "pp, prw, pr -> pp", passes="0+2")  # fmt: skip
