"""`plan`: from a function and the shapes of its arguments to a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from jax.sharding import Mesh

from sbpjax.cluster import Cluster
from sbpjax.errors import InfeasiblePlan, InvalidMesh, InvalidOption
from sbpjax.plans import Plan
from sbpjax.program.program import Program
from sbpjax.program.trace import trace
from sbpjax.report.units import parse_bytes
from sbpjax.sbp import MeshShape, Placement, mesh_size
from sbpjax.searching import find_layout, mesh_candidates
from sbpjax.strategy import Restrictions, Strategy
from sbpjax.witness.options import JUDGED

MEMORY_SHARE = 0.9
"""The share of a device's memory that a plan may use when no limit is given."""

MeshLike: TypeAlias = Mesh | Mapping[str, int]
StrategyLike: TypeAlias = str | Path | Mapping[str, Any]


def plan(
    fn: Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    cluster: str | Path | Cluster | None = None,
    mesh: MeshLike | None = None,
    strategy: StrategyLike = "auto",
    like: Plan | None = None,
    memory_limit: int | str | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    static_argnums: int | Sequence[int] | None = None,
) -> Plan:
    """Search the layout of a function for a cluster. Nothing is run, no device is needed.

    Args:
        fn: any jittable function; one that is `jax.jit`- or `nnx.jit`-ted keeps its donation and static arguments.
        args, kwargs: its arguments: arrays, `jax.ShapeDtypeStruct`s, nnx modules (also from `nnx.eval_shape`).
        cluster: `"8xh100"`, `"4x8xh100"`, a YAML file, a `Cluster`; None: the devices that JAX sees.
        mesh: a jax Mesh, or a shape such as `{"data": 2, "model": 4}`; None: the planner chooses.
        strategy: a name (`auto`, `dp`, `fsdp`, ...), a YAML file or a dict.
        like: a plan whose placements every leaf of the same path keeps.
        memory_limit: bytes of one device, or `"72GiB"`; None: 0.9 of the device's memory.
        donate_argnums, static_argnums: as for `jax.jit`.

    Raises:
        NotTraceable, UnknownName, InvalidMesh, InvalidStrategy, InfeasiblePlan: with the remedy in the message.
    """
    if like is not None and not isinstance(like, Plan):
        raise InvalidOption(f"like={like!r}: give a Plan, as sbpjax.Plan.load makes of a file")
    program = trace(fn, args, dict(kwargs or {}), static_argnums=static_argnums, donate_argnums=donate_argnums)
    hardware = Cluster.detect() if cluster is None else Cluster.parse(cluster)
    chosen = Strategy.load(strategy)
    limit = None if memory_limit is None else parse_bytes(memory_limit)
    plans: list[Plan] = []
    refused: InfeasiblePlan | None = None
    for shape in _meshes(mesh, like, chosen, hardware):
        restrictions = chosen.restrict(program, shape)
        if like is not None:
            restrictions = Restrictions.from_placements(program, like.placements, shape).over(restrictions)
        try:
            plans.append(plan_program(program, hardware, shape, restrictions, limit, strategy=chosen.name))
        except InfeasiblePlan as error:
            refused = refused or error
    if not plans:
        assert refused is not None
        raise refused
    best = min(plans, key=lambda plan: plan.step_seconds)
    devices = mesh.devices if isinstance(mesh, Mesh) else like.devices if like is not None else None
    return replace(best, devices=devices)


def plan_program(
    program: Program,
    cluster: Cluster,
    mesh: MeshShape,
    restrictions: Restrictions | None = None,
    limit_bytes: int | None = None,
    *,
    results: Sequence[Placement] | None = None,
    strategy: str = "auto",
) -> Plan:
    """The plan of a traced program on one mesh.

    Args:
        program: what to plan.
        cluster: the hardware; if it is larger than the mesh, a part of it is used.
        mesh: the mesh's shape.
        restrictions: what the strategy allows; None: everything.
        limit_bytes: memory of one device that may be used; None: 0.9 of it.
        results: placements that the results must have; None: free.
        strategy: the strategy's name, to be shown.
    """
    part = cluster.part(mesh_size(mesh))
    limit = int(MEMORY_SHARE * cluster.device.memory_bytes) if limit_bytes is None else limit_bytes
    allowed = Restrictions.none(program) if restrictions is None else restrictions
    found = find_layout(program, part, mesh, allowed, limit, results)
    options = JUDGED if cluster.device.platform == "cuda" else {}
    return Plan(
        name=program.name,
        cluster=part,
        strategy=strategy,
        layout=replace(found.layout, compiler_options=options),
        estimate=found.estimate,
        placements=dict(zip((leaf.path for leaf in program.leaves), found.layout.inputs, strict=True)),
        fingerprint=program.fingerprint,
        program=program,
        relaxed=(*allowed.relaxed, *found.relaxed),
    )


def _meshes(mesh: MeshLike | None, like: Plan | None, strategy: Strategy, cluster: Cluster) -> Sequence[MeshShape]:
    """The mesh shapes to search: the user's, else that of the plan to be like, else the strategy's, else candidates."""
    if isinstance(mesh, Mesh):
        return [dict(mesh.shape)]
    if mesh is not None:
        if not isinstance(mesh, Mapping):
            raise InvalidMesh(f"mesh={mesh!r}: give a jax Mesh, or a shape such as {{'data': 2, 'model': 4}}")
        for axis, size in mesh.items():
            if not isinstance(axis, str) or not axis:
                raise InvalidMesh(f"mesh={mesh!r}: an axis is named by a text such as 'data', not by {axis!r}")
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise InvalidMesh(f"mesh axis {axis!r} has size {size!r}; give a positive number of devices")
        return [dict(mesh)]
    if like is not None:
        return [like.mesh_shape]
    own = strategy.mesh(cluster)
    return [own] if own is not None else mesh_candidates(cluster)
