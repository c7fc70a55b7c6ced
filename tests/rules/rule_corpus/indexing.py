"""Indexing in all the forms that users and `jax.grad` write: dimension numbers, modes, indices out of bounds."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rule_corpus import Draw, example

MODES = ["fill", "clip", "promise_in_bounds"]


def rows(d: Draw, n: int, *shape: int, mode: str = "fill", dtype=np.int32) -> jax.Array:
    """Indices into `n` rows; where the mode says what happens, the first is out of bounds, and maybe others."""
    spill = 0 if mode == "promise_in_bounds" else 3
    found = d.ints(*shape, low=0 if np.issubdtype(dtype, np.unsignedinteger) else -spill, high=n + spill, dtype=dtype)
    return found.reshape(-1).at[0].set(n + 1).reshape(shape) if spill else found


@example("slice", "pad")
def slices(d: Draw):
    """Cut, every second, all; and the pads that are their gradients."""
    m, n = d.sizes(2)

    def fn(x):
        return x[1:], x[:, ::2], x[1::2, : n - 1], x[::2, 1::2], x[1:1]

    return jax.grad(lambda x: sum((y**2).sum() for y in fn(x))), d.floats(m, n)


@example("slice")
def sliced_keys(d: Draw):
    return lambda keys: lax.slice(keys, (0, 1), (4, 2)), jax.random.split(jax.random.key(0), (4, 2))


@example("pad")
def pads(d: Draw):
    m, n = d.sizes(2)

    def fn(x):
        return (
            jnp.pad(x, ((1, 2), (0, 0)), constant_values=3.0),
            lax.pad(x, jnp.float32(2), ((0, 1, 1), (1, 0, 1))),
            lax.pad(x, jnp.float32(2), ((-1, 2, 0), (1, 1, 2))),
        )

    return fn, d.floats(m, n)


@example("dynamic_slice")
def windows_at(d: Draw):
    m, n = d.sizes(2)
    rank_two = [(1, n), (m, 1), (1, 1), (2, n), (m, n)]
    at = d.choice(-1, 0, 3, 40)
    return lambda x, i: [lax.dynamic_slice(x, (i, i), sizes) for sizes in rank_two], d.floats(m, n), np.int32(at)


@example("dynamic_slice")
def layer_of_a_stack(d: Draw):
    """An unsigned index counts no further than its dtype."""
    return lambda x, i: lax.dynamic_slice(x, (i, jnp.uint8(0)), (1, 4)), d.bools(8, 4), jnp.uint8(d.choice(2, 200))


@example("dynamic_update_slice")
def updates_at(d: Draw):
    m, n = d.sizes(2)

    def fn(x, i):
        return [lax.dynamic_update_slice(x, x[:a, :b] + 9, (i, i)) for a, b in [(1, n), (1, 1), (2, n), (m, n)]]

    return fn, d.floats(m, n), np.int32(d.choice(-1, 1, 40))


@example("iota")
def counting(d: Draw):
    m, n = d.sizes(2)

    def fn():
        return (
            [lax.broadcasted_iota(np.int32, (m, n), k) for k in (0, 1)],
            lax.broadcasted_iota(np.uint8, (4, 512), 1),
            lax.broadcasted_iota(jnp.bfloat16, (4, 1024), 1),
        )

    return (fn,)


for _mode in MODES:

    @example("gather", "scatter-add")
    def embedding(d: Draw, mode=_mode):
        def loss(table, ids):
            return (table.at[ids].get(mode=mode) ** 2).sum()

        v = d.choice(4, 8)
        return jax.grad(loss), d.floats(v, 2), rows(d, v, 4, mode=mode)


@example("gather", "scatter-add")
def logits_at_labels(d: Draw):
    """A vocabulary beside a batching dimension."""
    mode, v = d.choice(*MODES), d.size()

    def loss(logits, labels):
        return (jnp.take_along_axis(logits, labels[:, None], axis=1, mode=mode) ** 2).sum()

    return jax.grad(loss), d.floats(4, v), rows(d, v, 4, mode=mode)


@example("gather")
def embedding_of_integers(d: Draw):
    """An integer fill is not to be added up; eight-bit indices do not count to the end."""
    fill = d.choice(None, 7)
    return lambda x, i: x.at[i].get(mode="fill", fill_value=fill), d.ints(120, 4), rows(d, 120, 4, dtype=np.int8)


@example("gather")
def truth_and_keys(d: Draw):
    def fn(truth, keys, i):
        return truth[i], keys[i]

    return fn, d.bools(8, 2), jax.random.split(jax.random.key(1), 8), rows(d, 8, 4, dtype=np.uint32)


@example("gather", "scatter-add")
def points(d: Draw):
    """`x[i, j]`: two vocabularies at once."""
    m, n = d.sizes(2)
    return jax.grad(lambda x, i, j: (x[i, j] ** 2).sum()), d.floats(m, n), d.ints(4), d.ints(4)


@example("gather", "scatter-add")
def columns(d: Draw):
    """`x[:, i]`: windows in front of the batch."""
    m, n = d.sizes(2)
    return jax.grad(lambda x, i: (x[:, i] ** 2).sum()), d.floats(m, n), d.ints(4)


@example("gather", "scatter-add")
def batched(d: Draw):
    """vmap gives batching dimensions, and windows that cover a part of a dimension."""
    b, n, m = d.sizes(3)

    def one(x, i, j):
        return (x[i] ** 2).sum() + (lax.dynamic_slice(x, (j, 0), (2, m)) ** 2).sum()

    return jax.grad(lambda x, i, j: jax.vmap(one)(x, i, j).sum()), d.floats(b, n, m), d.ints(b, 2), d.ints(b)


@example("scatter")
def batched_updates(d: Draw):
    b, n, m = d.sizes(3)
    return jax.vmap(lambda x, j: lax.dynamic_update_slice(x, x[:1], (j, 0))), d.floats(b, n, m), d.ints(b)


UPDATES = {
    "scatter-add": "add", "scatter-sub": "subtract", "scatter-mul": "multiply", "scatter-min": "min",
    "scatter-max": "max", "scatter": "set",
}  # fmt: skip
for _primitive, _method in UPDATES.items():

    @example(_primitive)
    def updated_rows(d: Draw, method=_method):
        v = d.choice(4, 8)
        mode = d.choice("drop", "clip", "promise_in_bounds")
        if method == "set":  # no row twice: which of two updates stays is not defined
            ids = jnp.asarray([[1, v - 1], [0, 2 if mode != "drop" else v + 1]], np.int32)
        else:
            ids = rows(d, v, 2, 2, mode=mode)

        def fn(x, ids, u):
            return getattr(x.at[ids], method)(u, mode=mode)

        return fn, d.floats(v, 4), ids, d.floats(2, 2, 4)


@example("scatter-add", "scatter-mul", "scatter")
def updated_column(d: Draw):
    def fn(x, i, u):
        return x.at[:, i].add(u), x.at[:, i].multiply(u), x.at[:, i].set(u)

    m, n = d.sizes(2)
    return fn, d.ints(m, n), np.int32(d.choice(-1, 0, 3)), d.ints(m)


@example("scatter-max", "scatter-min", "scatter")
def updated_truths(d: Draw):
    def fn(x, i, u):
        return x.at[i].max(u), x.at[i].min(u), x.at[i].apply(jnp.logical_not)

    return fn, d.bools(8), jnp.asarray([1, 6], np.int32), d.bools(2)


@example("scatter-add")
def histogram(d: Draw):
    return lambda i: jnp.bincount(i, length=8), rows(d, 8, 8, dtype=np.int8)
