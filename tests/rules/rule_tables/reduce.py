"""Reductions: what is reduced is split where the partial results can be combined."""

import jax
import jax.numpy as jnp
from jax import lax

from rule_tables import row

for _name, _fn, _dims, _passes in [
    ("reduce_sum", lax.reduce_sum, "pr -> p", "0"),
    ("reduce_max", lax.reduce_max, "px -> p", "0:max"),
    ("reduce_min", lax.reduce_min, "pn -> p", "0:min"),
    ("reduce_prod", lax.reduce_prod, "pw -> p", ""),
]:
    row(_name, lambda x, fn=_fn: fn(x, (1,)), [(4, 8)], _dims, passes=_passes)

BITS = {"reduce_or": lax.reduce_or, "reduce_and": lax.reduce_and, "reduce_xor": lax.reduce_xor}
TRUTH = {"reduce_or": ("px -> p", "0:max"), "reduce_and": ("pn -> p", "0:min"), "reduce_xor": ("pw -> p", "")}
for _name, _fn in BITS.items():
    _dims, _passes = TRUTH[_name]
    row(_name, lambda x, fn=_fn: fn(x, (1,)), [((4, 8), jnp.bool_)], _dims, passes=_passes)
    row(_name, lambda x, fn=_fn: fn(x, (1,)), [((4, 8), jnp.int32)], "pw -> p")

row("argmax", lambda x: lax.argmax(x, 1, jnp.int32), [(4, 8)], "pw -> p")
row("argmin", lambda x: lax.argmin(x, 1, jnp.int32), [(4, 8)], "pw -> p")
row("reduce", lambda x: lax.reduce(x, 1.0, lambda a, b: a * b + a + b, (1,)), [(4, 8)], "pw,  -> p")

row("psum", jax.vmap(lambda x: lax.psum(x, "i"), axis_name="i"), [(4, 8)], "rp -> p", passes="0")
row("pmax", jax.vmap(lambda x: lax.pmax(x, "i"), axis_name="i"), [(4, 8)], "xp -> p", passes="0:max")
row("pmin", jax.vmap(lambda x: lax.pmin(x, "i"), axis_name="i"), [(4, 8)], "np -> p", passes="0:min")
