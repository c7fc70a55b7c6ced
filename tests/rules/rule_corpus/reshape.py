"""Data movement."""

import jax
from jax import lax

from rule_corpus import Draw, example


@example("reshape")
def merged_and_split(d: Draw):
    before, after = d.choice(
        ((4, 8), (32,)),
        ((32,), (4, 8)),
        ((4, 8), (8, 4)),
        ((6, 4), (4, 6)),
        ((2, 1, 8, 3), (4, 4, 1, 3)),
        ((2, 6, 4), (12, 2, 2)),
        ((4, 12), (2, 4, 6)),
        ((4,), (1, 4, 1)),
        ((1, 1), ()),
        ((0, 4), (4, 0)),
    )
    return lambda x: lax.reshape(x, after), d.floats(*before)


@example("reshape")
def heads(d: Draw):
    b, s = d.sizes(2)
    return lambda x: (lax.reshape(x, (b * s, 8)), lax.reshape(x, (b, s, 4, 2))), d.floats(b, s, 8)


@example("reshape", "transpose", "squeeze", "rev", "broadcast_in_dim", "concatenate")
def keys(d: Draw):
    def fn(x):
        y = lax.reshape(x, (4, 1, x.size // 4))
        z = lax.rev(lax.squeeze(y, (1,)), (0,))
        return lax.transpose(y, (2, 0, 1)), lax.concatenate([z, z], 0), lax.broadcast_in_dim(x, (x.size, 4), (0,))

    return fn, jax.random.split(jax.random.key(0), 8)


@example("broadcast_in_dim")
def new_dimensions(d: Draw):
    m, n = d.sizes(2)
    return lambda x: lax.broadcast_in_dim(x, (4, m, n), (1, 2)), d.floats(m, d.choice(1, n))


@example("broadcast_in_dim")
def filled(d: Draw):
    shape = d.sizes(2)
    return lambda x: lax.broadcast_in_dim(x, shape, ()), d.floats()


@example("transpose")
def permuted(d: Draw):
    order = d.choice((1, 0, 2), (2, 0, 1), (0, 2, 1), (2, 1, 0), (1, 2, 0))
    return lambda x: lax.transpose(x, order), d.floats(*d.sizes(2), 4)


@example("squeeze")
def squeezed(d: Draw):
    return lambda x: lax.squeeze(x, (0, 2)), d.floats(1, d.size(), 1, 4)


@example("rev")
def reversed_dimensions(d: Draw):
    dims = d.choice((0,), (1,), (0, 1))
    return lambda x: lax.rev(x, dims), d.ints(*d.sizes(2))


@example("concatenate")
def joined(d: Draw):
    m, n = d.sizes(2)
    return lambda *x: lax.concatenate(x, 1), d.floats(m, n), d.floats(m, 1), d.floats(m, 4)


@example("split")
def cut(d: Draw):
    return lambda x: lax.split(x, (1, 3, 4), axis=1), d.floats(d.size(), 8)


@example("stack", "unstack")
def stacked(d: Draw):
    m, n = d.sizes(2)
    axis = d.choice(0, 1, 2)

    def fn(x, y):
        return jax.numpy.stack([x, y, x, y], axis), jax.numpy.unstack(x, axis=axis % 2)

    return fn, d.floats(m, n), d.floats(m, n)


@example("tile")
def tiled(d: Draw):
    reps = d.choice((4, 1), (1, 2), (2, 4))
    return lambda x: lax.tile(x, reps), d.floats(d.size(), 4)
