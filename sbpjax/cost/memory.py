"""Bytes alive on one device, moment by moment, for a layout: exact for the order in which the graph stands.

Every version of every tensor is a buffer from the op (or boxing) that makes it to its last reader. What stays in
registers has none; what only renames a buffer shares it; a result that carries a donated argument on takes over its
buffer. A loop's body is counted in the place of the loop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sbpjax.boxing import COLLECTIVES, Route, route
from sbpjax.cluster import Links
from sbpjax.cost.compute import renames
from sbpjax.layout import BodyLayout, Layout
from sbpjax.program.graph import Constant, Graph, Op
from sbpjax.program.program import Program

ROLE_NAMES = {"parameter": "parameters", "optimizer": "optimizer", "batch": "batch", "other": "other"}

Buffer = tuple[int, int]
"""A tensor and one of its versions."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that is alive at once.

    Attributes:
        bytes: on one device.
        moment: when, in moments of the flattened program.
        holders: the bytes by what holds them at that moment.
    """

    bytes: int
    moment: int
    holders: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class InMemory:
    """Which tensors of a graph go through memory, and the same for the bodies of its scans (by index of op)."""

    tensors: Sequence[bool]
    bodies: Mapping[int, InMemory]


@dataclass(slots=True)
class _Span:
    first: int
    last: int
    bytes: int
    holder: str


def peak(program: Program, layout: Layout, view: InMemory, links: Links) -> Peak:
    """The peak of a layout."""
    account = _Account(links)
    graph = program.graph
    end = _count_moments(graph) - 1
    roles = {t: ROLE_NAMES[leaf.role] for t, leaf in zip(graph.inputs, program.leaves, strict=True)}
    stay = {
        t
        for t, leaf in zip(graph.inputs, program.leaves, strict=True)
        if not leaf.donated or leaf.carried_to is not None
    }
    into: dict[int, int] = {
        leaf.carried_to: t
        for t, leaf in zip(graph.inputs, program.leaves, strict=True)
        if leaf.donated and leaf.carried_to is not None
    }
    account.graph(graph, layout.body, view, 0, end, roles, stay, into)
    return account.peak(end)


def _count_moments(graph: Graph) -> int:
    return sum(1 + (_count_moments(op.body) if op.body is not None else 0) for op in graph.ops)


class _Account:
    def __init__(self, links: Links) -> None:
        self.links = links
        self.spans: list[_Span] = []

    def peak(self, end: int) -> Peak:
        change = np.zeros(end + 2, dtype=np.int64)
        for s in self.spans:
            change[s.first] += s.bytes
            change[s.last + 1] -= s.bytes
        alive = np.cumsum(change)[: end + 1]
        moment = int(alive.argmax()) if len(alive) else 0
        holders: dict[str, int] = {}
        for s in self.spans:
            if s.first <= moment <= s.last:
                holders[s.holder] = holders.get(s.holder, 0) + s.bytes
        total = int(alive[moment]) if len(alive) else 0
        return Peak(total, moment, dict(sorted(holders.items(), key=lambda kv: -kv[1])))

    def graph(
        self,
        graph: Graph,
        body: BodyLayout,
        view: InMemory,
        start: int,
        end: int,
        roles: Mapping[int, str],
        stay: set[int],
        into: Mapping[int, int],
    ) -> None:
        """Account for one graph that runs from moment `start` to `end`.

        `roles` names what holds its inputs (an input without one belongs to the loop around), `stay` are inputs that
        live to the end, `into` maps results to the inputs whose buffers they take over.
        """
        spans: dict[Buffer, _Span] = {}
        shared: dict[Buffer, Buffer] = {}

        def root(buffer: Buffer) -> Buffer:
            while buffer in shared:
                buffer = shared[buffer]
            return buffer

        def make(buffer: Buffer, moment: int, holder: str) -> None:
            t, v = buffer
            size = self._bytes(graph, body, buffer)
            if v == 0 and not view.tensors[t] and not self._collected(graph, body, t):
                size = 0
            spans[buffer] = _Span(moment, moment, size, holder)

        def touch(buffer: Buffer, moment: int, holder: str) -> None:
            """Read a version at a moment; what it is boxed from is read when it is made."""
            if (found := spans.get(root(buffer))) is None:
                t, v = buffer
                parent = body.versions[t][v].parent
                assert parent is not None
                touch((t, parent), moment, holder)
                make(buffer, moment, f"gathered {roles[t]}" if t in roles else holder)
                found = spans[buffer]
                path = self._route(graph, body, buffer)
                if all(step.kind not in COLLECTIVES for step in path.steps) and not spans[root((t, parent))].bytes:
                    found.bytes = 0  # a slice of what stays in registers stays there
                if path.peak_bytes:
                    self.spans.append(_Span(moment, moment, path.peak_bytes, "collective buffers"))
            found.last = max(found.last, moment)

        for t in graph.inputs:
            if t in roles or t in stay:
                make((t, 0), start, roles.get(t, "loop state"))
            else:
                spans[t, 0] = _Span(start, start, 0, "loop")
            if t in stay:
                spans[t, 0].last = end
        moment = start
        for i, op in enumerate(graph.ops):
            last = moment + (_count_moments(op.body) if op.body is not None else 0)
            reads = [(x, v) for x, v in zip(op.inputs, body.uses[i], strict=True) if not isinstance(x, Constant)]
            for buffer in reads:
                touch(buffer, moment, _holder(op.source.phase))
                spans[root(buffer)].last = max(spans[root(buffer)].last, last)
            for t in op.outputs:
                if renames(op, view.tensors) and root(reads[0]) in spans:
                    shared[t, 0] = reads[0]
                else:
                    make((t, 0), moment, _holder(op.source.phase))
                    spans[t, 0].last = last
            if op.body is not None:
                self._scan_body(op, body.bodies[i], view.bodies[i], moment + 1, last)
            moment = last + 1
        for r, operand in enumerate(graph.outputs):
            if isinstance(operand, Constant):
                continue
            buffer = (operand, body.results[r])
            touch(buffer, end, "results")
            if r in into and root(buffer) != (into[r], 0):
                # The new value is written over the old one; until then nothing else holds it.
                spans[root(buffer)].bytes = 0
            else:
                spans[root(buffer)].last = end
        _name_long_lived(spans, graph)
        self.spans += [s for s in spans.values() if s.bytes]

    def _scan_body(self, op: Op, body: BodyLayout, view: InMemory, start: int, end: int) -> None:
        assert op.body is not None
        consts, carry = op.params["num_consts"], op.params["num_carry"]
        inputs = op.body.inputs
        # Constants are the outer buffers; the carry lives through the loop; a slice is cut out on each trip.
        roles = dict.fromkeys(inputs[consts + carry :], "loop slices")
        stay = set(inputs[consts : consts + carry])
        self.graph(op.body, body, view, start, max(start, end), roles, stay, {})

    def _bytes(self, graph: Graph, body: BodyLayout, buffer: Buffer) -> int:
        tensor = graph.tensors[buffer[0]]
        shape = body.versions[buffer[0]][buffer[1]].placement.local_shape(tensor.shape, self.links.mesh)
        return math.prod(shape) * tensor.itemsize

    def _route(self, graph: Graph, body: BodyLayout, buffer: Buffer) -> Route:
        tensor = graph.tensors[buffer[0]]
        return route(*body.boxed(*buffer), tensor.shape, tensor.itemsize, self.links)

    def _collected(self, graph: Graph, body: BodyLayout, t: int) -> bool:
        """Whether a collective reads the tensor as its op makes it; only then must it be in memory for its boxings."""
        children = [v for v, version in enumerate(body.versions[t]) if version.parent == 0]
        return any(step.kind in COLLECTIVES for v in children for step in self._route(graph, body, (t, v)).steps)


def _name_long_lived(spans: Mapping[Buffer, _Span], graph: Graph) -> None:
    """Rename what forward keeps for backward, and what backward keeps for the update."""
    for t, readers in enumerate(graph.readers()):
        span = spans.get((t, 0))
        if span is None:
            continue
        phases = {graph.ops[i].source.phase for i, _ in readers}
        if span.holder == "forward" and phases & {"backward", "remat"}:
            span.holder = "activations kept for backward"
        elif span.holder == "backward" and "update" in phases:
            span.holder = "gradients"


def _holder(phase: str) -> str:
    return {"forward": "forward", "remat": "recomputed", "backward": "backward", "update": "update"}[phase]
