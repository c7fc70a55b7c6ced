"""The search problem of a program: one node an op, an input, or a tensor that several readers share.

A node's options are placements (of an op: signatures). Edges are boxings. A tensor that is read in several phases of
the step has a *home*, so that, say, a partial sum is reduced once for forward and backward; readers of one phase share
a *copy*, so that they share its boxing. What a loop's body costs counts once a trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sbpjax.cluster import Links
from sbpjax.cost.compute import op_seconds
from sbpjax.formulate.nodes import Draft, Holder
from sbpjax.formulate.occupancy import local_bytes, occupy
from sbpjax.formulate.options import GraphOptions
from sbpjax.formulate.placements import Demand, scan_part
from sbpjax.formulate.purpose import purposes
from sbpjax.formulate.region import Region, Scan
from sbpjax.program.graph import Constant, Op, Phase
from sbpjax.program.program import Program
from sbpjax.sbp import MeshShape, Placement
from sbpjax.search.problem import Problem

HOLDING_SECONDS_PER_BYTE = 1e-15
"""The price of a byte of an argument (1 us a GB): of layouts that are equally fast, the smaller is taken."""

LATER_DIMENSION = 0.1
"""How much dearer a byte is for each dimension that lies before the split one: shards of the first are contiguous."""


@dataclass(frozen=True, eq=False)
class Formulation:
    """A program's search problem, and which node stands for what.

    Attributes:
        problem: to be solved.
        region: the nodes of the program's graph.
        inputs: what holds each graph input.
    """

    problem: Problem
    region: Region
    inputs: tuple[Holder, ...]


def formulate(
    program: Program,
    options: GraphOptions,
    at_rest: Sequence[Sequence[Placement]],
    results_at_rest: Sequence[Sequence[Placement]],
    links: Links,
) -> Formulation:
    """Pose the problem, without a memory limit.

    Args:
        program: what to lay out.
        options: what its ops may do on the mesh of `links`.
        at_rest: for each graph input, the placements that it may have.
        results_at_rest: the same for each result (of no matter for carried ones).
        links: the mesh on its cluster.
    """
    return _Builder(program, links).build(options, at_rest, results_at_rest)


class _Builder:
    def __init__(self, program: Program, links: Links) -> None:
        self.program = program
        self.draft = Draft(links)
        self.mesh: MeshShape = links.mesh
        self.device = links.cluster.device
        self.mesh_key = tuple(self.mesh.items())
        self.op_costs: dict[tuple, np.ndarray] = {}

    def build(
        self,
        options: GraphOptions,
        at_rest: Sequence[Sequence[Placement]],
        results_at_rest: Sequence[Sequence[Placement]],
    ) -> Formulation:
        graph = options.graph
        state = {
            t
            for t, leaf in zip(graph.inputs, self.program.leaves, strict=True)
            if leaf.role in ("parameter", "optimizer")
        }
        region = Region(options, (), 1, purposes(graph, state, ()))
        end = _number_moments(options, 0, region.moments)
        inputs = []
        for t, leaf, placements in zip(graph.inputs, self.program.leaves, at_rest, strict=True):
            held = local_bytes(self.draft, placements, graph.tensors[t]) * [_holding(p) for p in placements]
            node = self.draft.node(held, f"argument {leaf.path}", ("argument", leaf.role))
            holder = Holder(node, tuple(placements))
            inputs.append(holder)
            region.holders[t] = holder
        by_result = {leaf.carried_to: i for i, leaf in enumerate(self.program.leaves) if leaf.carried_to is not None}
        for r in range(len(graph.outputs)):
            if r in by_result:
                region.results.append(inputs[by_result[r]])
            else:
                name = f"result {self.program.result_paths[r]}"
                region.results.append(self._free_node(results_at_rest[r], name, "result"))
        self._nodes(region, Demand(options))
        self._edges(region)
        occupy(self.draft, region, self.program, end)
        return Formulation(self.draft.finish(), region, tuple(inputs))

    # --- nodes ---------------------------------------------------------------------------------------------------

    def _free_node(self, placements: Sequence[Placement], name: str, kind: object) -> Holder:
        return Holder(self.draft.node(np.zeros(len(placements)), name, kind), tuple(placements))

    def _nodes(self, region: Region, demand: Demand) -> None:
        graph = region.options.graph
        for i, (op, o) in enumerate(zip(graph.ops, region.options.ops, strict=True)):
            if o.body is not None:
                region.op_nodes.append(-1)
                scan = self._scan(region, i, op, demand.bodies[i])
                region.scans[i] = scan
                for k, t in enumerate(op.outputs):
                    held = scan.results[k]
                    region.holders[t] = held if k < op.params["num_carry"] else held.lifted()
                continue
            node = self.draft.node(
                self._op_seconds(region, op, i) * region.repeats,
                f"{op.name} at {op.source}",
                (op.name, op.source.phase, region.path),
            )
            region.op_nodes.append(node)
            for k, t in enumerate(op.outputs):
                region.holders[t] = Holder(node, tuple(s.results[k] for s in o.signatures))
        self._share(region, demand)

    def _op_seconds(self, region: Region, op: Op, i: int) -> np.ndarray:
        o = region.options.ops[i]
        graph = region.options.graph
        key = (
            op.name,
            id(o.rule),
            o.moves,
            o.signatures,
            tuple((tuple(graph.aval(x).shape), str(graph.aval(x).dtype)) for x in (*op.inputs, *op.outputs)),
        )
        if key not in self.op_costs:
            self.op_costs[key] = op_seconds(graph, op, o.rule, o.signatures, o.moves, self.mesh, self.device)
        return self.op_costs[key]

    def _scan(self, outer: Region, i: int, op: Op, demand: Demand) -> Scan:
        body_options = outer.options.ops[i].body
        assert op.body is not None and body_options is not None
        consts, carry = op.params["num_consts"], op.params["num_carry"]
        state = {
            t
            for k, (t, operand) in enumerate(zip(op.body.inputs, op.inputs, strict=True))
            if operand in outer.purposes.parameters and scan_part(op, k) != "carried"
        }
        gradients = [k for k, t in enumerate(op.outputs) if t in outer.purposes.gradients]
        kinds = purposes(op.body, state, gradients)
        region = Region(body_options, (*outer.path, i), outer.repeats * op.repeats, kinds)
        _number_moments(body_options, outer.moments[i][0] + 1, region.moments)
        where = f"of scan at {op.source}"
        inputs: list[Holder] = []
        for k, t in enumerate(op.body.inputs):
            part = scan_part(op, k)
            options = demand.carried(op, k - consts) if part == "carried" else demand.entering(op, k)
            held = self._free_node(list(options), f"{part} {op.body.tensors[t].name} {where}", (part, region.path))
            inputs.append(held)
            region.holders[t] = held
        for k in range(len(op.body.outputs)):
            if k < carry:
                region.results.append(inputs[consts + k])
            else:
                name = f"stacked result {k - carry} {where}"
                region.results.append(self._free_node(list(demand.stacked(op, k)), name, ("stacked", region.path)))
        self._nodes(region, demand)
        self._edges(region)
        return Scan(region, tuple(inputs), tuple(region.results))

    def _share(self, region: Region, demand: Demand) -> None:
        """Homes and copies of the tensors that have several readers."""
        graph = region.options.graph
        returned = {t for t in graph.outputs if not isinstance(t, Constant)}
        for t in range(len(graph.tensors)):
            uses = region.uses(t)
            if len(uses) + (t in returned) < 2:
                continue
            phases: list[Phase] = list(dict.fromkeys(u.phase for u in uses))
            made = region.holders[t]
            name = graph.tensors[t].name
            options = tuple(dict.fromkeys((*made.placements, *demand.requests[t])))
            if len(phases) + (t in returned) > 1 and t not in region.inputs:
                region.homes[t] = self._free_node(options, f"{name}, kept", ("home", region.path, tuple(phases)))
            for phase in phases:
                if sum(u.phase == phase for u in uses) > 1:
                    region.copies[t, phase] = self._free_node(
                        options, f"{name}, in {phase}", ("copy", region.path, phase)
                    )

    # --- edges ---------------------------------------------------------------------------------------------------

    def _edges(self, region: Region) -> None:
        graph, draft, repeats = region.options.graph, self.draft, region.repeats
        for t, tensor in enumerate(graph.tensors):
            uses = region.uses(t)
            kept = region.kept(t)
            if kept is not region.holders[t]:
                draft.connect(region.holders[t], kept, tensor, region.kept_for(t), repeats)
            phases: list[Phase] = list(dict.fromkeys(u.phase for u in uses))
            for phase in phases:
                if copy := region.copies.get((t, phase)):
                    draft.connect(kept, copy, tensor, region.purposes.of(t, {phase}), repeats)
            for u in uses:
                asked = region.asking(u.i, u.k)
                draft.connect(region.source(t, u.phase), asked, tensor, region.purposes.of(t, {u.phase}), repeats)
        for operand, target in zip(graph.outputs, region.results, strict=True):
            if not isinstance(operand, Constant):
                purpose = region.returned_for(operand)
                draft.connect(region.kept(operand), target, graph.tensors[operand], purpose, repeats)


def _holding(placement: Placement) -> float:
    """Seconds for each byte of an argument in a placement."""
    last = max((d for d, axes in enumerate(placement.dims) if axes), default=0)
    return HOLDING_SECONDS_PER_BYTE * (1 + LATER_DIMENSION * last)


def _number_moments(options: GraphOptions, moment: int, moments: list[tuple[int, int]]) -> int:
    """Append the first and last moment of each op to `moments`; a loop's body runs within its moments."""
    for o in options.ops:
        first = moment
        moment += 1
        if o.body is not None:
            moment = _number_moments(o.body, moment, [])
        moments.append((first, moment - 1))
    return moment
