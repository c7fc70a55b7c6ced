"""Pooling: windows side by side, overlapping, padded; forward, backward and tangent. And running reductions."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import lax

from rule_corpus import Draw, example

POOLS = {
    "side by side": ((2, 2), (2, 2), "VALID"),
    "overlapping": ((3, 3), (2, 2), "SAME"),
    "with gaps": ((1, 2), (2, 2), "VALID"),
}
for _window, _strides, _padding in POOLS.values():

    @example("reduce_window_max", "select_and_scatter_add", "select_and_gather_add")
    def max_pool(d: Draw, pool=(_window, _strides, _padding)):
        def fn(x):
            pooled = lambda x: nn.max_pool(x, *pool)  # noqa: E731
            return jax.grad(lambda x: (pooled(x) ** 2).sum())(x), jax.jvp(pooled, (x,), (x + 1,))

        return fn, d.floats(2, 4, d.choice(4, 8), 2)

    @example("reduce_window_sum")
    def avg_pool(d: Draw, pool=(_window, _strides, _padding)):
        return jax.grad(lambda x: (nn.avg_pool(x, *pool) ** 2).sum()), d.floats(2, 4, d.choice(4, 8), 2)


@example("reduce_window_min")
def min_pool(d: Draw):
    return lambda x: lax.reduce_window(x, np.inf, lax.min, (1, 2), (1, 2), "VALID"), d.floats(*d.sizes(2))


@example("reduce_window")
def other_monoids(d: Draw):
    def pair(a, b):
        return a[0] * b[0], a[1] + b[1]

    def fn(x):
        one = lax.reduce_window(x, 1.0, lax.mul, (1, 2), (1, 1), "SAME")
        return one, lax.reduce_window((x, x), (1.0, 0.0), pair, (2, 1), (2, 1), "VALID")

    return fn, d.floats(*d.sizes(2))


RUNNING = {
    "cumsum": lax.cumsum, "cumprod": lax.cumprod, "cummax": lax.cummax, "cummin": lax.cummin,
    "cumlogsumexp": lax.cumlogsumexp,
}  # fmt: skip
for _name, _fn in RUNNING.items():

    @example(_name)
    def running(d: Draw, fn=_fn):
        axis, reverse = d.choice(0, 1), d.choice(False, True)
        return lambda x: fn(x, axis=axis, reverse=reverse), d.floats(*d.sizes(2))


@example("sort")
def sorted_rows(d: Draw):
    def fn(x, y):
        return jnp.sort(x, axis=0), jnp.argsort(x, axis=1), lax.sort((y, x), dimension=1, num_keys=2)

    m, n = d.sizes(2)
    return fn, d.floats(m, n), d.ints(m, n, low=0, high=3)


@example("top_k")
def largest(d: Draw):
    return lambda x: lax.top_k(x, 2), d.floats(*d.sizes(2))


@example("approx_top_k")
def about_the_largest(d: Draw):
    return lambda x: (lax.approx_max_k(x, 2), lax.approx_min_k(x, 2, reduction_dimension=0)), d.floats(*d.sizes(2))
