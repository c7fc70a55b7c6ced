"""What a strategy, and pins in the user's code, leave of the signatures of an op."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sbpjax.errors import InvalidStrategy, UnknownName
from sbpjax.program.graph import Graph, Op, Tensor
from sbpjax.program.nested import equations
from sbpjax.rules.rule import Signature
from sbpjax.sbp import KNOWN_AXES, MeshShape, Placement
from sbpjax.strategy.restrictions import Allowed, Relaxed, Restrictions, place, show


def restricted(
    op: Op,
    graph: Graph,
    found: Sequence[Signature],
    mesh: MeshShape,
    restrictions: Restrictions,
    relaxed: list[Relaxed],
) -> Sequence[Signature]:
    """The signatures that remain, at least one. What gave way is appended to `relaxed`.

    Raises:
        InvalidStrategy: a pin that no signature keeps.
        UnknownName: a pin in the code speaks of an axis that does not exist.
    """
    if op.name == "sbp_constrain":
        return _constrained(op, graph, found, mesh, relaxed)
    relaxed += _constraints_within(op, mesh)
    for k in range(len(op.outputs)):
        pins, allowed = restrictions.activation_pins.get((op, k), {}), restrictions.tensor(op, k)
        for axis in sorted(allowed, key=lambda axis: axis not in pins):
            kept = [s for s in found if s.results[k].on(axis) in allowed[axis]]
            if kept:
                found = kept
                continue
            reason = _not_offered(axis, allowed, [s.results[k] for s in found])
            if axis in pins:
                raise _cannot_hold(pins[axis], axis, allowed, op, graph.tensors[op.outputs[k]], reason)
            relaxed.append(Relaxed(place(op), axis, reason))
    return found


@dataclass(frozen=True)
class LoopPins:
    """Pins on what a loop returns, which the results of its body have to keep.

    Attributes:
        op: the loop.
        results: what it writes.
        allowed: for each of them, what pins allow on some axes.
        pins: for the same, which pin.
    """

    op: Op
    results: tuple[Tensor, ...]
    allowed: tuple[Allowed, ...]
    pins: tuple[Mapping[str, str], ...]

    def kept(self, k: int, placements: Iterable[Placement]) -> dict[Placement, None]:
        """Those of some placements of result `k` that its pins allow.

        Raises:
            InvalidStrategy: none is.
        """
        found = dict.fromkeys(placements)
        for axis, choices in self.allowed[k].items():
            kept = {p: None for p in found if p.on(axis) in choices}
            if not kept:
                reason = _not_offered(axis, self.allowed[k], list(found))
                raise _cannot_hold(self.pins[k][axis], axis, self.allowed[k], self.op, self.results[k], reason)
            found = kept
        return found


def loop_pins(op: Op, graph: Graph, restrictions: Restrictions) -> LoopPins:
    """The pins on what a loop of `graph` returns."""
    keys = [(op, k) for k in range(len(op.outputs))]
    return LoopPins(
        op,
        tuple(graph.tensors[t] for t in op.outputs),
        tuple(restrictions.tensor(*key) for key in keys),
        tuple(restrictions.activation_pins.get(key, {}) for key in keys),
    )


def _constraints_within(op: Op, mesh: MeshShape) -> Iterator[Relaxed]:
    """Sharding constraints within a `cond` or a `while`."""
    for eqn in equations(op.params):
        if eqn.primitive.name == "sbp_constrain" and not eqn.params["strict"]:
            for axis, sbp in eqn.params["pins"]:
                if axis in mesh:
                    yield Relaxed(
                        place(op), axis, f"a sharding constraint to {sbp} within: every device computes it whole"
                    )


def _not_offered(axis: str, allowed: Allowed, placements: Sequence[Placement]) -> str:
    offered = " or ".join(sorted({str(p.on(axis)) for p in placements}))
    return f"{show(allowed[axis])} is not among what the op can leave there ({offered})"


def _cannot_hold(pin: str, axis: str, allowed: Allowed, op: Op, written: Tensor, reason: str) -> InvalidStrategy:
    return InvalidStrategy(
        f"{pin}: {axis} cannot hold for {op.name} at {op.source}, which writes {written.aval.str_short()}: {reason}. "
        f"Narrow the pin with `primitive:`, `phase:` or `rank:`, or write "
        f"[{', '.join(sorted(map(str, allowed[axis])))}, B]"
    )


def _constrained(
    op: Op, graph: Graph, found: Sequence[Signature], mesh: MeshShape, relaxed: list[Relaxed]
) -> Sequence[Signature]:
    """The signatures that keep a pin. One that is not strict (a sharding constraint for another mesh) may give way."""
    strict, pins = op.params["strict"], dict(op.params["pins"])
    for axis in pins:
        if strict and axis not in mesh and axis not in KNOWN_AXES:
            raise UnknownName.among(f"mesh axis in constrain at {op.source}", axis, {*mesh, *KNOWN_AXES})
    pins = {axis: sbp for axis, sbp in pins.items() if axis in mesh}
    kept = [s for s in found if all(s.results[0].on(axis) == sbp for axis, sbp in pins.items())]
    if kept:
        return kept
    shape = graph.tensors[op.outputs[0]].shape
    if strict:
        asked = ", ".join(f"{axis}={sbp}" for axis, sbp in pins.items())
        raise InvalidStrategy(
            f"constrain({asked}) cannot hold for a tensor of shape {shape} on mesh {dict(mesh)} at {op.source}: pin a "
            "dimension that exists and that the axis divides."
        )
    reason = f"the sharding constraint at {op.source} does not divide shape {shape} on mesh {dict(mesh)}"
    relaxed += [Relaxed(place(op), axis, reason) for axis in pins]
    return found
