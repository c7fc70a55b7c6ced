"""Placements at rest as JAX's own values: PartitionSpec and NamedSharding."""

from __future__ import annotations

from typing import Any, TypeAlias

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from sbpjax.layout import Layout
from sbpjax.program.program import Program
from sbpjax.sbp import Placement

AnyMesh: TypeAlias = Mesh | AbstractMesh
"""A mesh of devices, or (to lower without them) only its axes."""


def partition_spec(placement: Placement) -> PartitionSpec:
    """The PartitionSpec of a placement that is nowhere partial.

    Raises:
        ValueError: the placement is partial; no array at rest is.
    """
    if placement.partial:
        raise ValueError(f"{placement} is partial: a PartitionSpec of an array at rest cannot say so")
    dims = [axes[0] if len(axes) == 1 else axes or None for axes in placement.dims]
    return PartitionSpec(*dims)


def named_sharding(placement: Placement, mesh: AnyMesh) -> NamedSharding:
    """The NamedSharding of a placement that is nowhere partial."""
    return NamedSharding(mesh, partition_spec(placement))  # pyright: ignore[reportArgumentType]


def closure_shardings(program: Program, layout: Layout, mesh: AnyMesh) -> tuple[NamedSharding, ...]:
    """One sharding for each closed-over array."""
    return tuple(named_sharding(placement, mesh) for placement in layout.inputs[: len(program.closure)])


def in_shardings(program: Program, layout: Layout, mesh: AnyMesh) -> tuple[Any, ...]:
    """Shardings shaped like the tuple of positional arguments.

    A static argument has None at its position. nnx modules appear as `in_tree` has them.
    """
    args, _ = _inputs(program, layout, mesh)
    return args


def kwarg_shardings(program: Program, layout: Layout, mesh: AnyMesh) -> dict[str, Any]:
    """Shardings shaped like the keyword arguments."""
    _, kwargs = _inputs(program, layout, mesh)
    return kwargs


def out_shardings(program: Program, layout: Layout, mesh: AnyMesh) -> Any:
    """Shardings shaped like the result."""
    return jax.tree.unflatten(program.out_tree, [named_sharding(p, mesh) for p in layout.outputs])


def _inputs(program: Program, layout: Layout, mesh: AnyMesh) -> tuple[tuple[Any, ...], dict[str, Any]]:
    arguments = [named_sharding(p, mesh) for p in layout.inputs[len(program.closure) :]]
    args, kwargs = jax.tree.unflatten(program.in_tree, arguments)
    for position in sorted(program.static_argnums):
        args = (*args[:position], None, *args[position:])
    return args, kwargs
