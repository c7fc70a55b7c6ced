"""Products of tensors."""

import jax.numpy as jnp
from jax import lax

from rule_corpus import Draw, example


@example("dot_general")
def batched_product(d: Draw):
    b, m, k, n = 4, d.size(), d.size(), d.choice(4, 1)
    return lambda x, y: lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,)))), d.floats(b, m, k), d.floats(b, k, n)


@example("dot_general")
def two_contracted_dimensions(d: Draw):
    m, k = d.sizes(2)
    return lambda x, y: lax.dot_general(x, y, (((0, 2), (1, 0)), ((), ()))), d.floats(k, m, 4), d.floats(4, k)


@example("dot_general")
def mixed_precision(d: Draw):
    x, y = d.floats(4, d.size(), dtype=jnp.bfloat16), d.floats(4, dtype=jnp.bfloat16)
    return lambda x, y: lax.dot_general(x, y, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32), x, y


@example("dot_general")
def integer_product(d: Draw):
    return lambda x, y: lax.dot_general(x, y, (((0,), (0,)), ((), ()))), d.ints(8), d.ints(8, 4)


def ragged(contracted, batch, rows, groups):
    numbers = lax.RaggedDotDimensionNumbers(
        dot_dimension_numbers=(contracted, batch), lhs_ragged_dimensions=rows, rhs_group_dimensions=groups
    )
    return lambda x, y, sizes: lax.ragged_dot_general(x, y, sizes, numbers)


@example("ragged_dot_general")
def grouped_rows(d: Draw):
    sizes = jnp.asarray(d.choice([3, 0, 5], [1, 2, 2]))
    return ragged(((1,), (1,)), ((), ()), [0], [0]), d.floats(8, 4), d.floats(3, 4, 4), sizes


@example("ragged_dot_general")
def grouped_summands(d: Draw):
    sizes = jnp.asarray(d.choice([3, 0, 5], [1, 2, 2]))
    return ragged(((0,), (0,)), ((), ()), [0], []), d.floats(8, 4), d.floats(8, 4), sizes


@example("ragged_dot_general")
def grouped_batch(d: Draw):
    return ragged(((2,), (1,)), ((0,), (0,)), [0], []), d.floats(4, 4, 4), d.floats(4, 4, 4), jnp.asarray([1, 3])


@example("ragged_dot_general")
def groups_of_each_batch_entry(d: Draw):
    sizes = jnp.asarray([[3, 1], [0, 4]])
    return ragged(((2,), (2,)), ((0,), (1,)), [1], [0]), d.floats(2, 4, 4), d.floats(2, 2, 4, 4), sizes
