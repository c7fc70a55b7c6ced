"""Restrictions: which placements the search may give to each leaf and activation of one program on one mesh."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from sbpjax.errors import InvalidStrategy, UnknownName
from sbpjax.program.graph import Op
from sbpjax.program.program import Program
from sbpjax.sbp import MeshShape, Placement, Sbp

T = TypeVar("T")

Allowed = Mapping[str, frozenset[Sbp]]
"""The placements allowed on each mesh axis; an axis that is absent is free."""


class Relaxed(NamedTuple):
    """A rule that gave way on one axis because the shape does not allow it.

    Attributes:
        path: the leaf's path, or the module and primitive of an activation.
        axis: the mesh axis.
        reason: why, for the plan's table.
    """

    path: str
    axis: str
    reason: str


def place(op: Op) -> str:
    """The module and primitive of an op, as lists of what gave way name it."""
    return f"{op.source.module or 'top level'}: {op.name}"


@dataclass(frozen=True, eq=False)
class Restrictions:
    """What may be searched.

    Attributes:
        paths: the path of each graph input.
        leaves: what is allowed for each graph input. Some combination of it always divides the leaf's shape.
        pins: for each graph input, the axes that a pin decided, and which pin: it must hold. Other axes were decided
            by rules, which mean "where it divides" and have given way already.
        activations: what is allowed for (op, position of the result).
        activation_pins: for the same, the axes that a pin decided, and which pin.
        relaxed: where rules gave way.
    """

    paths: tuple[str, ...]
    leaves: tuple[Allowed, ...]
    pins: tuple[Mapping[str, str], ...]
    activations: Mapping[tuple[Op, int], Allowed] = field(default_factory=dict)
    activation_pins: Mapping[tuple[Op, int], Mapping[str, str]] = field(default_factory=dict)
    relaxed: tuple[Relaxed, ...] = ()

    def leaf(self, i: int) -> Allowed:
        """What is allowed for graph input `i`."""
        return self.leaves[i]

    def pinned(self, i: int) -> bool:
        """Whether a pin decided some axis of graph input `i`."""
        return bool(self.pins[i])

    def tensor(self, op: Op, result_index: int) -> Allowed:
        """What is allowed for what an op writes; an axis that is absent is free."""
        return self.activations.get((op, result_index), {})

    def over(self, other: Restrictions) -> Restrictions:
        """These restrictions where they say something, `other`'s elsewhere; both are of the same program and mesh.

        Raises:
            InvalidStrategy: two pins contradict each other.
        """
        leaves, pins = [], []
        for i, path in enumerate(self.paths):
            for axis in self.pins[i].keys() & other.pins[i].keys():
                if self.leaves[i][axis].isdisjoint(other.leaves[i][axis]):
                    raise InvalidStrategy(
                        f"{path}: two pins contradict each other on axis {axis!r}: {show(self.leaves[i][axis])} by "
                        f"{self.pins[i][axis]}, {show(other.leaves[i][axis])} by {other.pins[i][axis]}; drop one"
                    )
            # A rule of ours does not beat a pin of theirs.
            beaten = {a for a in self.leaves[i] if a in other.pins[i] and a not in self.pins[i]}
            own = {a: allowed for a, allowed in self.leaves[i].items() if a not in beaten}
            leaves.append({**other.leaves[i], **own})
            pins.append({**other.pins[i], **self.pins[i]})
        relaxed = tuple(dict.fromkeys((*self.relaxed, *other.relaxed)))
        return Restrictions(
            self.paths,
            tuple(leaves),
            tuple(pins),
            _over(self.activations, other.activations),
            _over(self.activation_pins, other.activation_pins),
            relaxed,
        )

    @classmethod
    def none(cls, program: Program) -> Restrictions:
        """Everything is free."""
        paths = tuple(leaf.path for leaf in program.leaves)
        return cls(paths, ({},) * len(paths), ({},) * len(paths))

    @classmethod
    def from_placements(
        cls, program: Program, placements: Mapping[str, Placement], mesh: MeshShape, origin: str = "like="
    ) -> Restrictions:
        """Give every leaf that the program shares with `placements`, by path, the placement it has there.

        A parameter that another function knows by a shorter or longer path (`params.dense.kernel` for
        `state.params.dense.kernel`) is shared too where only one path has that ending and the rank agrees. Batch
        leaves of another size keep their placement where it divides.

        Raises:
            InvalidStrategy: no leaf is shared, or a state leaf of another shape cannot be placed so.
            UnknownName: a placement uses an axis that the mesh lacks.
        """
        result = cls.none(program)
        endings = _endings(placements)
        leaves, pins, relaxed = list(result.leaves), list(result.pins), []
        for i, leaf in enumerate(program.leaves):
            shape = program.graph.tensors[program.graph.inputs[i]].shape
            path = _shared(leaf.path, leaf.role == "batch", len(shape), placements, endings)
            if path is None:
                continue
            placement = placements[path]
            for axis in placement.split_axes:
                if axis not in mesh:
                    raise UnknownName.among("mesh axis", axis, mesh, f"{origin} splits {path} over it.")
            if len(shape) == placement.rank and placement.divides(shape, mesh):
                leaves[i] = {axis: frozenset([placement.on(axis)]) for axis, size in mesh.items() if size > 1}
                pins[i] = {} if leaf.role == "batch" else dict.fromkeys(leaves[i], origin)
                continue
            reason = f"shape {shape} cannot be placed {placement} on mesh {dict(mesh)} as {path} is by {origin}"
            if leaf.role != "batch":
                raise InvalidStrategy(f"{leaf.path}: {reason}; give it the shape it has there, or leave out {origin}")
            relaxed += [Relaxed(leaf.path, axis, reason) for axis in placement.split_axes]
        if not any(leaves) and not relaxed and any(size > 1 for size in mesh.values()):
            raise InvalidStrategy(
                f"{origin} shares no leaf with {program.name}: it has {_some(placements)}, this function has "
                f"{_some(result.paths)}; name the arguments alike"
            )
        return cls(result.paths, tuple(leaves), tuple(pins), relaxed=tuple(relaxed))


def _over(
    ours: Mapping[tuple[Op, int], Mapping[str, T]], theirs: Mapping[tuple[Op, int], Mapping[str, T]]
) -> Mapping[tuple[Op, int], Mapping[str, T]]:
    return {key: {**theirs.get(key, {}), **ours.get(key, {})} for key in (*theirs, *ours)}


def show(allowed: frozenset[Sbp]) -> str:
    """`S(0)` or `B or S(0)`."""
    return " or ".join(sorted(map(str, allowed)))


def _endings(paths: Mapping[str, Placement]) -> Mapping[tuple[str, ...], list[str]]:
    """All paths by each of their endings."""
    endings: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path in paths:
        parts = tuple(path.split("."))
        for start in range(len(parts)):
            endings[parts[start:]].append(path)
    return endings


def _shared(
    path: str,
    exact_only: bool,
    rank: int,
    placements: Mapping[str, Placement],
    endings: Mapping[tuple[str, ...], Sequence[str]],
) -> str | None:
    if path in placements:
        return path
    if exact_only:
        return None
    parts = tuple(path.split("."))
    found = [p for p in endings.get(parts, ()) if placements[p].rank == rank]
    for start in range(1, len(parts) - 1):
        tail = ".".join(parts[start:])
        if not found and tail in placements and placements[tail].rank == rank:
            found = [tail]
    return found[0] if len(found) == 1 else None


def _some(paths: Mapping[str, Placement] | Sequence[str]) -> str:
    shown = sorted(paths)[:3]
    return ", ".join(shown) + (", ..." if len(paths) > 3 else "") if shown else "none"
