"""Which placements a tensor can be made in, and which its readers ask for: options of what stands between ops."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from sbpjax.formulate.options import GraphOptions
from sbpjax.formulate.restricted import LoopPins
from sbpjax.program.graph import Constant, Op
from sbpjax.sbp import Placement


class Demand:
    """Offered and requested placements of one graph's tensors, loop bodies seen through."""

    def __init__(self, options: GraphOptions, pins: LoopPins | None = None) -> None:
        """`pins` are on what the loop returns whose body this is."""
        self.options = options
        self.pins = pins
        self.bodies = {i: Demand(o.body, o.pins) for i, o in enumerate(options.ops) if o.body is not None}

    @cached_property
    def requests(self) -> list[dict[Placement, None]]:
        """For each tensor, the placements in which some op can read it, in a fixed order."""
        graph = self.options.graph
        requests: list[dict[Placement, None]] = [{} for _ in graph.tensors]
        for i, op in enumerate(graph.ops):
            for k, operand in enumerate(op.inputs):
                if not isinstance(operand, Constant):
                    requests[operand].update(dict.fromkeys(self._asked(i, op, k)))
        return requests

    def _asked(self, i: int, op: Op, k: int) -> Iterable[Placement]:
        if op.body is None:
            return (s.operands[k] for s in self.options.ops[i].signatures)
        inside = self.bodies[i].requests[op.body.inputs[k]]
        return (p.lifted() for p in inside) if scan_part(op, k) == "scanned" else inside

    @cached_property
    def offers(self) -> list[dict[Placement, None]]:
        """For each tensor, the placements in which its op can leave it; for a graph input, what its readers ask for."""
        graph = self.options.graph
        offers: list[dict[Placement, None]] = [{} for _ in graph.tensors]
        for t in graph.inputs:
            offers[t].update(self.requests[t])
        for i, op in enumerate(graph.ops):
            for k, t in enumerate(op.outputs):
                if op.body is None:
                    offers[t].update(dict.fromkeys(s.results[k] for s in self.options.ops[i].signatures))
                elif k < op.params["num_carry"]:
                    offers[t].update(self.bodies[i].carried(op, k))
                else:
                    offers[t].update(dict.fromkeys(p.lifted() for p in self.bodies[i].stacked(op, k)))
        return offers

    def carried(self, op: Op, c: int) -> dict[Placement, None]:
        """Placements for carry `c` of the scan whose body this is: what the body asks for or makes, and B."""
        assert op.body is not None
        start = op.body.inputs[op.params["num_consts"] + c]
        end = op.body.outputs[c]
        made = {} if isinstance(end, Constant) else self.offers[end]
        return self._kept(c, _broadcast_first(op.body.tensors[start].shape, self.requests[start], made))

    def stacked(self, op: Op, k: int) -> dict[Placement, None]:
        """Placements for one slice of the scan's stacked result `k`: what the body makes, and B."""
        assert op.body is not None
        end = op.body.outputs[k]
        made = {} if isinstance(end, Constant) else self.offers[end]
        return self._kept(k, _broadcast_first(tuple(op.body.aval(end).shape), made), stacked=True)

    def _kept(self, k: int, placements: dict[Placement, None], stacked: bool = False) -> dict[Placement, None]:
        """What pins on the loop's result `k` leave of placements of the body's."""
        if self.pins is None:
            return placements
        lain = {p.lifted() if stacked else p: p for p in placements}
        return {lain[p]: None for p in self.pins.kept(k, lain)}

    def entering(self, op: Op, k: int) -> dict[Placement, None]:
        """Placements for a constant or a slice that enters the scan's body as its input `k`: never partial."""
        assert op.body is not None
        t = op.body.inputs[k]
        whole = {p: None for p in self.requests[t] if not p.partial}
        return _broadcast_first(op.body.tensors[t].shape, whole)


def scan_part(op: Op, k: int) -> str:
    """What operand `k` of a scan is: `constant`, `carried` or `scanned`."""
    consts, carry = op.params["num_consts"], op.params["num_carry"]
    return "constant" if k < consts else "carried" if k < consts + carry else "scanned"


def _broadcast_first(shape: tuple[int, ...], *more: dict[Placement, None]) -> dict[Placement, None]:
    merged: dict[Placement, None] = {Placement.broadcast(len(shape)): None}
    for placements in more:
        merged.update(placements)
    return merged
