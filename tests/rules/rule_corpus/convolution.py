"""Convolutions, each with its two gradients, in several dimension orders. Small integers: sums are exact."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rule_corpus import Draw, example

ORDERS = [("NHC", "HIO", "NHC"), ("NCH", "OIH", "NCH"), ("CNH", "OHI", "HCN")]


def _laid_out(x: jax.Array, order: str, standard: str) -> jax.Array:
    return jnp.transpose(x, [standard.index(letter) for letter in order])


def _convolution(d: Draw, size: int, kernel: int, features: tuple[int, int], groups: int = 1, **options):
    """Forward and both gradients of a 1-D convolution of `(4, size, features[0])`."""
    order = d.choice(*ORDERS)
    if isinstance(options["padding"], tuple):
        options["padding"] = [options["padding"]]
    options["window_strides"] = (options.pop("stride", 1),)

    def square(x, w):
        y = lax.conv_general_dilated(x, w, dimension_numbers=order, feature_group_count=groups, **options)
        return (y**2).sum()

    x = d.ints(4, size, features[0], low=-2, high=3, dtype=np.float32)
    w = d.ints(kernel, features[0] // groups, features[1], low=-2, high=3, dtype=np.float32)
    return jax.grad(square, (0, 1)), _laid_out(x, order[0], "NHC"), _laid_out(w, order[1], "HIO")


@example("conv_general_dilated")
def overlapping(d: Draw):
    stride, dilation = d.choice((1, 1), (2, 1), (1, 2))
    return _convolution(d, 8, 3, (2, 4), stride=stride, padding="SAME", rhs_dilation=(dilation,))


@example("conv_general_dilated")
def patches(d: Draw):
    """As a vision transformer cuts its image."""
    return _convolution(d, 8, 2, (4, 2), stride=2, padding="VALID")


@example("conv_general_dilated")
def one_by_one(d: Draw):
    """With strides, as in a residual network's shortcut, some positions are never read."""
    return _convolution(d, 8, 1, (4, 4), stride=d.choice(1, 2), padding="SAME")


@example("conv_general_dilated")
def transposed(d: Draw):
    return _convolution(d, 4, 2, (4, 2), padding=(1, 1), lhs_dilation=(2,))


@example("conv_general_dilated")
def grouped(d: Draw):
    """Few groups of several features, so that devices share a group; and depthwise."""
    groups, features = d.choice((2, (8, 4)), (4, (4, 8)))
    return _convolution(d, 4, 3, features, groups=groups, padding="SAME")


@example("conv_general_dilated")
def image(d: Draw):
    """Two spatial dimensions, each with its own window."""
    numbers = ("NHWC", "HWIO", "NHWC")

    def square(x, w):
        return (lax.conv_general_dilated(x, w, (4, 1), "SAME", dimension_numbers=numbers) ** 2).sum()

    x, w = d.ints(2, 8, 4, 2, low=-2, high=3, dtype=np.float32), d.ints(4, 3, 2, 2, low=-2, high=3, dtype=np.float32)
    return jax.grad(square, (0, 1)), x, w
