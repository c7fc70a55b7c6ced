"""Carrying out a boxing: one JAX collective for each collective step, on one device's part of a tensor.

A step program has many boxings, and each is traced: local steps bind lax primitives, which costs a tenth of what
jax.numpy's functions do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import lax

from sbpjax.boxing import Route, Step
from sbpjax.sbp import CombineOp, MeshShape

AxisIndex: TypeAlias = Callable[[tuple[str, ...]], Any]


def box(x: Any, route: Route, shape: Sequence[int], mesh: MeshShape, axis_index: AxisIndex = lax.axis_index) -> Any:
    """Apply a route to a device's part of a tensor, inside `jax.shard_map` over all axes of the mesh.

    Args:
        x: the part that the route's source placement gives to this device; any dtype, PRNG keys included.
        route: what to do.
        shape: the whole tensor's shape.
        mesh: axis sizes.
        axis_index: the linear index of this device along some axes, major to minor (an int32).

    Returns:
        The part that the target placement gives to this device.

    Raises:
        ValueError: the route is impossible: its source or target does not divide the shape.
    """
    if math.isinf(route.seconds):
        raise ValueError(f"a placement does not divide shape {tuple(shape)} on mesh {dict(mesh)}: nothing to carry out")
    for step in route.steps:
        x = _apply(x, step, mesh, axis_index)
    return x


def _apply(x: Any, step: Step, mesh: MeshShape, axis_index: AxisIndex) -> Any:
    axes, dim = step.axes, step.dim
    match step.kind:
        case "all_reduce":
            return _extreme(x, axes, step.op) if step.op in ("max", "min") else lax.psum(x, axes)
        case "reduce_scatter":
            return lax.psum_scatter(x, axes, scatter_dimension=_given(dim), tiled=True)
        case "all_gather":
            return lax.all_gather(x, axes, axis=_given(dim), tiled=True)
        case "all_to_all":
            return lax.all_to_all(x, axes, split_axis=_given(step.to_dim), concat_axis=_given(dim), tiled=True)
        case "permute":
            return lax.ppermute(x, axes, step.pairs)
        case "slice":
            part = list(x.shape)
            part[_given(dim)] //= math.prod(mesh[a] for a in axes)
            starts = _starts(len(part), _given(dim), part[_given(dim)], axis_index(axes))
            return lax.dynamic_slice_p.bind(x, *starts, slice_sizes=tuple(part))
        case "mask" if step.op in ("max", "min"):
            return x  # the maximum of equals is each of them, and neutral infinities might meet others on the way
        case "mask":
            first = lax.eq(axis_index(axes), np.int32(0))
            return lax.select_n(first, lax.full_like(x, 0), x)
        case "pad":
            whole = list(x.shape)
            whole[_given(dim)] *= math.prod(mesh[a] for a in axes)
            around = lax.full(whole, _neutral(x.dtype, step.op or "sum"), x.dtype)
            starts = _starts(len(whole), _given(dim), x.shape[_given(dim)], axis_index(axes))
            return lax.dynamic_update_slice_p.bind(around, x, *starts)


def _starts(rank: int, dim: int, size: int, index: Any) -> list[Any]:
    """Where this device's part begins in the whole: 0 but along `dim`."""
    starts: list[Any] = [np.int32(0)] * rank
    starts[dim] = lax.mul(index, np.int32(size))
    return starts


def _extreme(x: Any, axes: tuple[str, ...], op: CombineOp) -> Any:
    """The max or min over devices; NaN where any device has NaN, as on one device.

    The collectives themselves (XLA's on CPU) may drop a NaN. So floats travel as integers of the same order, with NaN
    beyond all numbers. Those of less than 32 bits are widened: NCCL reduces no short integers.
    """
    reduce = lax.pmax if op == "max" else lax.pmin
    if not jnp.issubdtype(x.dtype, np.floating):
        return reduce(x, axes)
    wide = x if x.dtype.itemsize >= 4 else lax.convert_element_type(x, np.float32)
    integer = np.dtype(f"int{8 * wide.dtype.itemsize}")
    limits = np.iinfo(integer)
    ordered = _flipped(lax.bitcast_convert_type(wide, integer), limits)
    beyond = lax.full_like(ordered, limits.max if op == "max" else limits.min)
    ordered = reduce(lax.select(lax.ne(wide, wide), beyond, ordered), axes)
    return lax.convert_element_type(lax.bitcast_convert_type(_flipped(ordered, limits), wide.dtype), x.dtype)


def _flipped(bits: Any, limits: np.iinfo) -> Any:
    """From a float's bits to an integer of the same order, and back: magnitudes of negative numbers are inverted."""
    negative = lax.shift_right_arithmetic(bits, lax.full_like(bits, limits.bits - 1))
    return lax.bitwise_xor(bits, lax.bitwise_and(negative, lax.full_like(bits, limits.max)))


def _given(dim: int | None) -> int:
    assert dim is not None
    return dim


def _neutral(dtype: Any, op: CombineOp) -> Any:
    """What changes nothing when combined by `op`."""
    if op == "sum":
        return 0
    if dtype == np.bool_:
        return op == "min"
    if jnp.issubdtype(dtype, np.floating):
        return -np.inf if op == "max" else np.inf
    limits = jnp.iinfo(dtype)
    return limits.min if op == "max" else limits.max
