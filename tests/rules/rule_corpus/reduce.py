"""Reductions."""

import jax
from jax import lax

from rule_corpus import Draw, example

REDUCTIONS = {
    "reduce_sum": lax.reduce_sum, "reduce_max": lax.reduce_max, "reduce_min": lax.reduce_min,
    "reduce_prod": lax.reduce_prod,
}  # fmt: skip
for _name, _fn in REDUCTIONS.items():

    @example(_name)
    def reduced(d: Draw, fn=_fn):
        axes = d.choice((0,), (1,), (0, 1))
        return lambda x: fn(x, axes), d.floats(*d.sizes(2))


BITS = {"reduce_and": lax.reduce_and, "reduce_or": lax.reduce_or, "reduce_xor": lax.reduce_xor}
for _name, _fn in BITS.items():

    @example(_name)
    def reduced_bits(d: Draw, fn=_fn):
        m, n = d.sizes(2)
        return lambda x, y: (fn(x, (0,)), fn(y, (0,))), d.bools(m, n), d.ints(m, n)


@example("reduce_sum", "reduce_max")
def reduced_integers(d: Draw):
    return lambda x: (lax.reduce_sum(x, (0,)), lax.reduce_max(x, (0,))), d.ints(d.size(), high=2**31 - 1)


@example("argmax", "argmin")
def positions(d: Draw):
    return lambda x: (lax.argmax(x, 0, "int32"), lax.argmin(x, 1, "int32")), d.ints(*d.sizes(2))


@example("reduce")
def own_function(d: Draw):
    def both(a, b):
        return a[0] * b[0] + a[0] + b[0], lax.max(a[1], b[1])

    m, n = d.sizes(2)
    return lambda x, y: lax.reduce((x, y), (0.0, -9), both, (1,)), d.floats(m, n), d.ints(m, n)


@example("psum", "pmax", "pmin")
def batched_collectives(d: Draw):
    def fn(x):
        return lax.psum(x, "batch"), lax.pmax(x, "batch"), lax.pmin(x, "batch")

    return jax.vmap(fn, axis_name="batch"), d.floats(*d.sizes(2))
