"""Data movement: partial values of any op pass; dimensions go where their elements go."""

import jax.numpy as jnp
from jax import lax

from rule_tables import row

ANY = "sum max min"
ONE = f"0:{ANY}"


def reshape(before, after, dims):
    row("reshape", lambda x: lax.reshape(x, after), [before], dims, passes=ONE)


reshape((4, 8), (32,), "pp -> p")
reshape((32,), (4, 8), "p -> pp")
reshape((4, 8, 6), (4, 2, 4, 6), "ppp -> pppp")
reshape((6, 4, 5), (4, 6, 5), "pwp -> pwp")
reshape((3, 4), (4, 3), "ww -> ww")
reshape((1, 4, 1), (4,), "wpw -> p")
row("reshape", lambda k: lax.reshape(k, (2, 4)), [((8,), "key")], "p -> pp")

row("broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (6, 4, 8), (1, 2)), [(4, 1)], "pw -> ppp", passes=ONE)
row("broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (4, 8), ()), [()], " -> pp", passes=ONE)
row("transpose", lambda x: lax.transpose(x, (2, 0, 1)), [(4, 6, 8)], "ppp -> ppp", passes=ONE)
row("squeeze", lambda x: lax.squeeze(x, (1,)), [(4, 1, 8)], "pwp -> pp", passes=ONE)
row("rev", lambda x: lax.rev(x, (1,)), [(4, 8)], "pw -> pw", passes=ONE)
row("concatenate", lambda x, y: lax.concatenate([x, y], 1), [(4, 8), (4, 2)], "pw, pw -> pw", passes=f"0+1:{ANY}")
row("concatenate", lambda x, y: lax.concatenate([x, y], 0), [((4,), jnp.bool_)] * 2, "w, w -> w", passes="0+1:max min")
row("split", lambda x: lax.split(x, (2, 6), axis=1), [(4, 8)], "pw -> pw, pw", passes=ONE)
row("stack", lambda x, y: jnp.stack([x, y], 1), [(4, 8), (4, 8)], "pp, pp -> pwp", passes=f"0+1:{ANY}")
row("unstack", lambda x: jnp.unstack(x, axis=1), [(4, 2, 8)], "pwp -> pp, pp", passes=ONE)
row("tile", lambda x: lax.tile(x, (1, 2)), [(4, 8)], "pp -> pp", passes=ONE)
