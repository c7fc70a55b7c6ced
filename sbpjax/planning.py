"""`plan`: from a function and the shapes of its arguments to a plan; and `Plan`, all that is known of the answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from sbpjax import planfile, report
from sbpjax.cluster import Cluster, Links
from sbpjax.cost.estimate import Collective, Estimate, Indivisible, Unsplit
from sbpjax.emit import auto, manual, shardings
from sbpjax.emit.step import EmittedStep
from sbpjax.errors import InfeasiblePlan, InvalidMesh, InvalidPlanFile, UnboundPlan, UnknownName
from sbpjax.layout import Layout
from sbpjax.program.program import Program
from sbpjax.program.trace import trace
from sbpjax.report.units import parse_bytes
from sbpjax.sbp import MeshShape, Placement, mesh_size
from sbpjax.searching import find_layout, mesh_candidates
from sbpjax.strategy import Relaxed, Restrictions, Strategy

MEMORY_SHARE = 0.9
"""The share of a device's memory that a plan may use when no limit is given."""

EMITTERS: Mapping[str, Callable[..., EmittedStep]] = {"shard_map": manual.emit, "jit": auto.emit}

Emitter: TypeAlias = Literal["shard_map", "jit"]
MeshLike: TypeAlias = Mesh | Mapping[str, int]
StrategyLike: TypeAlias = str | Path | Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Plan:
    """How one function runs on one mesh: placements, boxings, figures.

    A plan that was loaded from a file knows its placements and figures; `bind` gives it the function back, and with it
    the power to emit.

    Attributes:
        name: the function's name.
        cluster: the hardware it was made for.
        strategy: the name of the strategy.
        layout: what every tensor's placement is.
        estimate: the figures.
        placements: by path, the placement of every argument at rest.
        fingerprint: of the program.
        program: the traced function; None until `bind`.
        relaxed: rules of the strategy that gave way, and why.
        devices: the devices of the mesh that the user gave, if they did.
    """

    name: str
    cluster: Cluster
    strategy: str
    layout: Layout
    estimate: Estimate
    placements: Mapping[str, Placement]
    fingerprint: str
    program: Program | None = None
    relaxed: Sequence[Relaxed] = ()
    devices: Any = None

    @property
    def mesh_shape(self) -> dict[str, int]:
        """Axis to size, major to minor: the last axis lies innermost."""
        return dict(self.layout.mesh)

    @property
    def step_seconds(self) -> float:
        """The search's objective: seconds of a step, each boxing at its exposed share."""
        return self.estimate.step_seconds

    @property
    def bound_seconds(self) -> float:
        """No layout among those offered has a smaller objective."""
        return self.estimate.bound_seconds

    @property
    def gap(self) -> float:
        """`step_seconds / bound_seconds - 1`; infinite where nothing but 0 is known to be a bound."""
        if self.bound_seconds == 0:
            return 0.0 if self.step_seconds == 0 else math.inf
        return self.step_seconds / self.bound_seconds - 1

    @property
    def simulated_seconds(self) -> float | None:
        """By the schedule simulator, where it was run."""
        return self.estimate.simulated_seconds

    @property
    def peak_bytes(self) -> int:
        """The most that is alive at once on one device."""
        return self.estimate.peak_bytes

    @property
    def limit_bytes(self) -> int:
        """The memory limit that was kept."""
        return self.estimate.limit_bytes

    @property
    def collectives(self) -> tuple[Collective, ...]:
        """Every collective of the emitted program."""
        return self.estimate.collectives

    @property
    def unsplit(self) -> tuple[Unsplit, ...]:
        """Ops that run whole on every device, with their cost."""
        return self.estimate.unsplit

    @property
    def indivisible(self) -> tuple[Indivisible, ...]:
        """Arguments that an axis does not divide, with what that costs."""
        return self.estimate.indivisible

    def make_mesh(self, devices: Sequence[Any] | None = None) -> Mesh:
        """A mesh of the plan's shape, its devices in the order that was priced.

        Args:
            devices: which to use, in order; by default those of the mesh that was planned for, else all that JAX sees.

        Raises:
            InvalidMesh: there are fewer devices than the plan needs.
        """
        if devices is None:
            devices = list(np.ravel(self.devices)) if self.devices is not None else jax.devices()
        wanted = mesh_size(self.mesh_shape)
        if len(devices) < wanted:
            raise InvalidMesh(
                f"the plan's mesh {self.mesh_shape} needs {wanted} devices, there are {len(devices)}; plan for this "
                "machine, or emulate devices with XLA_FLAGS=--xla_force_host_platform_device_count"
            )
        sizes, names = tuple(self.mesh_shape.values()), tuple(self.mesh_shape)
        grid = np.asarray(devices[:wanted], dtype=object).reshape(sizes)
        return Mesh(grid, names, axis_types=(AxisType.Auto,) * len(names))

    def in_shardings(self, mesh: Mesh) -> tuple[Any, ...]:
        """NamedShardings shaped like the tuple of the function's arguments."""
        return shardings.in_shardings(self._bound("in_shardings"), self.layout, self._checked(mesh))

    def out_shardings(self, mesh: Mesh) -> Any:
        """NamedShardings shaped like the function's result."""
        return shardings.out_shardings(self._bound("out_shardings"), self.layout, self._checked(mesh))

    def emit(self, mesh: Mesh, emitter: Emitter = "shard_map") -> EmittedStep:
        """The parallel program, jitted; it refuses arguments of other shapes than those that were planned.

        Args:
            mesh: from `make_mesh`, or any of the same axes and sizes.
            emitter: `shard_map` has exactly the plan's collectives; `jit` leaves the collectives to XLA.
        """
        program = self._bound("emit")
        if emitter not in EMITTERS:
            raise UnknownName.among("emitter", emitter, EMITTERS)
        return EMITTERS[emitter](program, self.layout, self._links(), self._checked(mesh))

    def save(self, path: str | Path) -> None:
        """Write the plan to a YAML file, atomically."""
        planfile.save(
            path,
            planfile.Saved(
                name=self.name,
                fingerprint=self.fingerprint,
                cluster=self.cluster,
                strategy=self.strategy,
                layout=self.layout,
                estimate=self.estimate,
                paths=tuple(self.placements),
                relaxed=tuple(self.relaxed),
            ),
        )

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan back: placements by path, and figures. `bind` it to its function to emit.

        Raises:
            InvalidPlanFile: the file is damaged, was edited, or is of another version.
        """
        saved = planfile.load(path)
        return cls(
            name=saved.name,
            cluster=saved.cluster,
            strategy=saved.strategy,
            layout=saved.layout,
            estimate=saved.estimate,
            placements=dict(zip(saved.paths, saved.layout.inputs, strict=True)),
            fingerprint=saved.fingerprint,
            relaxed=tuple(Relaxed(*row) for row in saved.relaxed),
        )

    def bind(
        self,
        fn: Callable[..., Any],
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        donate_argnums: int | Sequence[int] | None = None,
        static_argnums: int | Sequence[int] | None = None,
    ) -> Plan:
        """The plan together with the function that it was made for, traced anew.

        Raises:
            InvalidPlanFile: the function or its arguments are not those that were planned.
        """
        program = trace(fn, args, dict(kwargs or {}), static_argnums=static_argnums, donate_argnums=donate_argnums)
        if program.fingerprint != self.fingerprint:
            raise InvalidPlanFile(self._difference(program))
        return replace(self, program=program)

    def _difference(self, program: Program) -> str:
        paths = tuple(leaf.path for leaf in program.leaves)
        remedy = "plan this function anew, or bind the one that was planned with the same arguments and options"
        for mine, theirs in zip(self.placements, paths, strict=False):
            if mine != theirs:
                return f"the plan is of another program: it has {mine} where {program.name} has {theirs}; {remedy}"
        if len(paths) != len(self.placements):
            return (
                f"the plan is of another program: it has {len(self.placements)} arguments, {program.name} has "
                f"{len(paths)}; {remedy}"
            )
        return (
            f"the plan is of another program: {program.name} has the same arguments as the planned {self.name}, but "
            f"other shapes, dtypes, donation or operations; {remedy}"
        )

    def _bound(self, wanted: str) -> Program:
        if self.program is None:
            raise UnboundPlan(f"a loaded plan has no function: call plan.bind(fn, *args) before plan.{wanted}")
        return self.program

    def _links(self) -> Links:
        return Links(self.cluster, {axis: n for axis, n in self.layout.mesh.items() if n > 1})

    def _checked(self, mesh: Mesh) -> Mesh:
        shape = dict(mesh.shape)
        if shape != self.mesh_shape:
            raise InvalidMesh(f"the plan is for mesh {self.mesh_shape}, this one is {shape}; use plan.make_mesh()")
        if any(t != AxisType.Auto for t in mesh.axis_types):
            mesh = Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))
        return mesh

    def __str__(self) -> str:
        return report.text(self)

    def __repr__(self) -> str:
        return f"<Plan of {self.name} on {self.mesh_shape}: {self.step_seconds:.4g} s a step>"

    def _repr_html_(self) -> str:
        return report.html(self)


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
    part = _part_of(cluster, mesh)
    limit = int(MEMORY_SHARE * cluster.device.memory_bytes) if limit_bytes is None else limit_bytes
    allowed = Restrictions.none(program) if restrictions is None else restrictions
    found = find_layout(program, part, mesh, allowed, limit, results)
    return Plan(
        name=program.name,
        cluster=part,
        strategy=strategy,
        layout=found.layout,
        estimate=found.estimate,
        placements=dict(zip((leaf.path for leaf in program.leaves), found.layout.inputs, strict=True)),
        fingerprint=program.fingerprint,
        program=program,
        relaxed=allowed.relaxed,
    )


def _meshes(mesh: MeshLike | None, like: Plan | None, strategy: Strategy, cluster: Cluster) -> Sequence[MeshShape]:
    """The mesh shapes to search: the user's, else that of the plan to be like, else the strategy's, else candidates."""
    if isinstance(mesh, Mesh):
        return [dict(mesh.shape)]
    if mesh is not None:
        for axis, size in mesh.items():
            if not isinstance(size, int) or size < 1:
                raise InvalidMesh(f"mesh axis {axis!r} has size {size!r}; give a positive number of devices")
        return [dict(mesh)]
    if like is not None:
        return [like.mesh_shape]
    own = strategy.mesh(cluster)
    return [own] if own is not None else mesh_candidates(cluster)


def _part_of(cluster: Cluster, mesh: MeshShape) -> Cluster:
    """The cluster, or as much of it as the mesh has devices."""
    wanted = mesh_size(mesh)
    if wanted > cluster.size:
        raise InvalidMesh(
            f"mesh {dict(mesh)} needs {wanted} devices, {cluster.name} has {cluster.size}; give a smaller mesh or a "
            "larger cluster"
        )
    return cluster if wanted == cluster.size else cluster.scaled(wanted)
