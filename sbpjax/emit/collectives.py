"""Carrying out a boxing: one JAX collective for each collective step, on one device's part of a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from sbpjax.boxing import Route, Step
from sbpjax.sbp import CombineOp, MeshShape


def box(x: Any, route: Route, shape: Sequence[int], mesh: MeshShape) -> Any:
    """Apply a route to a device's part of a tensor, inside `jax.shard_map` over all axes of the mesh.

    Args:
        x: the part that the route's source placement gives to this device; any dtype, PRNG keys included.
        route: what to do.
        shape: the whole tensor's shape.
        mesh: axis sizes.

    Returns:
        The part that the target placement gives to this device.

    Raises:
        ValueError: the route is impossible: its source or target does not divide the shape.
    """
    if math.isinf(route.seconds):
        raise ValueError(f"a placement does not divide shape {tuple(shape)} on mesh {dict(mesh)}: nothing to carry out")
    for step in route.steps:
        x = _apply(x, step, mesh)
    return x


def _apply(x: Any, step: Step, mesh: MeshShape) -> Any:
    axes, dim = step.axes, step.dim
    match step.kind:
        case "all_reduce":
            return _REDUCE[step.op or "sum"](x, axes)
        case "reduce_scatter":
            return lax.psum_scatter(x, axes, scatter_dimension=_given(dim), tiled=True)
        case "all_gather":
            return lax.all_gather(x, axes, axis=_given(dim), tiled=True)
        case "all_to_all":
            return lax.all_to_all(x, axes, split_axis=_given(step.to_dim), concat_axis=_given(dim), tiled=True)
        case "permute":
            return lax.ppermute(x, axes, step.pairs)
        case "slice":
            size = x.shape[_given(dim)] // math.prod(mesh[a] for a in axes)
            return lax.dynamic_slice_in_dim(x, lax.axis_index(axes) * size, size, _given(dim))
        case "mask":
            return jnp.where(lax.axis_index(axes) == 0, x, _neutral(x.dtype, step.op or "sum"))
        case "pad":
            size = x.shape[_given(dim)]
            whole = list(x.shape)
            whole[_given(dim)] = size * math.prod(mesh[a] for a in axes)
            around = jnp.full(whole, _neutral(x.dtype, step.op or "sum"), x.dtype)
            return lax.dynamic_update_slice_in_dim(around, x, lax.axis_index(axes) * size, _given(dim))


_REDUCE = {"sum": lax.psum, "max": lax.pmax, "min": lax.pmin}


def _given(dim: int | None) -> int:
    assert dim is not None
    return dim


def _neutral(dtype: Any, op: CombineOp) -> Any:
    """What changes nothing when combined by `op`."""
    if op == "sum":
        return jnp.zeros((), dtype)
    if dtype == jnp.bool_:
        return jnp.array(op == "min")
    if jnp.issubdtype(dtype, jnp.floating):
        return jnp.array(-jnp.inf if op == "max" else jnp.inf, dtype)
    limits = jnp.iinfo(dtype)
    return jnp.array(limits.min if op == "max" else limits.max, dtype)
