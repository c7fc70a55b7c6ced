"""`Plan`: all that is known of how one function runs on one mesh, and the power to emit it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh

from sbpjax import planfile, report
from sbpjax.cluster import Cluster, Links
from sbpjax.cost.estimate import Collective, Estimate, Indivisible, Unsplit
from sbpjax.emit import auto, manual, shardings
from sbpjax.emit.step import EmittedStep
from sbpjax.errors import InvalidMesh, InvalidPlanFile, UnboundPlan, UnknownName
from sbpjax.layout import Layout
from sbpjax.program.program import Program
from sbpjax.program.trace import trace
from sbpjax.sbp import Placement, mesh_size
from sbpjax.strategy import Relaxed

Emitter: TypeAlias = Literal["shard_map", "jit"]

EMITTERS: Mapping[str, Callable[..., EmittedStep]] = {"shard_map": manual.emit, "jit": auto.emit}


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

    def emit(self, mesh: Mesh | AbstractMesh, emitter: Emitter = "shard_map") -> EmittedStep:
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

    def _checked(self, mesh: Mesh | AbstractMesh) -> Mesh | AbstractMesh:
        if not isinstance(mesh, Mesh | AbstractMesh):
            raise InvalidMesh(f"mesh={mesh!r} is no jax Mesh; use plan.make_mesh()")
        shape = dict(mesh.shape)
        if shape != self.mesh_shape:
            raise InvalidMesh(f"the plan is for mesh {self.mesh_shape}, this one is {shape}; use plan.make_mesh()")
        if any(t != AxisType.Auto for t in mesh.axis_types):
            auto = (AxisType.Auto,) * len(mesh.axis_names)
            if isinstance(mesh, AbstractMesh):
                return AbstractMesh(mesh.axis_sizes, mesh.axis_names, axis_types=auto)
            return Mesh(mesh.devices, mesh.axis_names, axis_types=auto)
        return mesh

    def report(self) -> report.Document:
        """All that `print(plan)` shows, as titles and rows."""
        return report.document(self)

    def __str__(self) -> str:
        return report.text(self.report())

    def __repr__(self) -> str:
        return f"<Plan of {self.name} on {self.mesh_shape}: {self.step_seconds:.4g} s a step>"

    def _repr_html_(self) -> str:
        return report.html(self.report())
