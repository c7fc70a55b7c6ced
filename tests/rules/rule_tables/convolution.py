"""Convolutions and their gradients: batch and output features are parallel, input features are summed over."""

import jax
from jax import lax

from rule_tables import row

NHWC = ("NHWC", "HWIO", "NHWC")


def conv(lhs, rhs, dims, *, strides=(1, 1), padding="SAME", numbers=NHWC, **options):
    def fn(x, w):
        return lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=numbers, **options)

    row("conv_general_dilated", fn, [lhs, rhs], dims, passes="0, 1")
    return fn


conv((2, 8, 6, 4), (3, 3, 4, 10), "pwwr, wwrp -> pwwp")
conv((2, 4, 8, 6), (10, 4, 3, 3), "prww, prww -> ppww", numbers=("NCHW", "OIHW", "NCHW"))
conv((2, 8, 6, 4), (1, 1, 4, 10), "pppr, wwrp -> pppp")
conv((2, 8, 6, 4), (1, 1, 4, 10), "pppr, wwrp -> pppp", strides=(2, 2))
conv((2, 8, 6, 4), (3, 3, 1, 8), "pwwp, wwwp -> pwwp", feature_group_count=4)
conv((2, 8, 6, 4), (3, 3, 2, 8), "pwwp, wwrp -> pwwp", feature_group_count=2)
conv((4, 8, 6, 4), (3, 3, 4, 8), "pwwr, wwrp -> pwwp", batch_group_count=2)
patches = conv((2, 8, 6, 4), (4, 2, 4, 10), "pppr, wwrp -> pppp", strides=(4, 2), padding="VALID")


def gradient(argument, dims):
    """Of the patches, with respect to the input or the kernel, by itself."""

    def fn(x, w, g):
        return jax.linear_transpose(lambda y: patches(*((y, w) if argument == 0 else (x, y))), (x, w)[argument])(g)

    row("conv_general_dilated", fn, [(2, 8, 6, 4), (4, 2, 4, 10), (2, 2, 3, 10)], dims, passes="0, 1")


gradient(0, "pppr, wwpr -> pppp")
gradient(1, "rrrp, rrrp -> wwpp")
