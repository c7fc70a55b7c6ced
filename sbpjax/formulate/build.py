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
from sbpjax.cost.exposure import Purpose
from sbpjax.formulate.nodes import Draft, Holder
from sbpjax.formulate.occupancy import local_bytes, occupy
from sbpjax.formulate.options import GraphOptions
from sbpjax.formulate.placements import Demand, scan_part
from sbpjax.formulate.region import Region, Scan
from sbpjax.program.graph import Constant, Graph, Op, Phase
from sbpjax.program.program import Program
from sbpjax.sbp import MeshShape, Placement
from sbpjax.search.problem import Problem


HOLDING_SECONDS_PER_BYTE = 1e-15
"""The price of holding a byte of an argument (1 us a GB): of layouts that are equally fast, the smaller one is taken."""


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
    limit_bytes: float | None,
) -> Formulation:
    """Pose the problem.

    Args:
        program: what to lay out.
        options: what its ops may do on the mesh of `links`.
        at_rest: for each graph input, the placements that it may have.
        results_at_rest: the same for each result (of no matter for carried ones).
        links: the mesh on its cluster.
        limit_bytes: memory of one device that may be used.
    """
    return _Builder(program, links).build(options, at_rest, results_at_rest, limit_bytes)


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
        limit_bytes: float | None,
    ) -> Formulation:
        graph = options.graph
        region = Region(options, (), 1)
        end = self._number_moments(region, 0)
        inputs = []
        for t, leaf, placements in zip(graph.inputs, self.program.leaves, at_rest, strict=True):
            held = local_bytes(self.draft, placements, graph.tensors[t]) * HOLDING_SECONDS_PER_BYTE
            node = self.draft.node(held, f"argument {leaf.path}", ("argument", leaf.role))
            holder = Holder(node, tuple(placements), leaf.role in ("parameter", "optimizer"))
            inputs.append(holder)
            region.holders[t] = holder
        by_result = {leaf.carried_to: i for i, leaf in enumerate(self.program.leaves) if leaf.carried_to is not None}
        for r in range(len(graph.outputs)):
            if r in by_result:
                region.results.append(inputs[by_result[r]])
            else:
                name = f"result {self.program.result_paths[r]}"
                region.results.append(self._free_node(results_at_rest[r], name, "result"))
        region.purposes = ["result"] * len(graph.outputs)
        self._nodes(region, Demand(options))
        self._edges(region)
        occupy(self.draft, region, self.program, end)
        return Formulation(self.draft.finish(limit_bytes), region, tuple(inputs))

    # --- nodes ---------------------------------------------------------------------------------------------------

    def _free_node(self, placements: Sequence[Placement], name: str, kind: object) -> Holder:
        return Holder(self.draft.node(np.zeros(len(placements)), name, kind), tuple(placements))

    def _number_moments(self, region: Region, moment: int) -> int:
        for o in region.options.ops:
            first = moment
            moment += 1
            if o.body is not None:
                moment = self._number_moments(Region(o.body, (), 1), moment)
            region.moments.append((first, moment - 1))
        return moment

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
        region = Region(body_options, (*outer.path, i), outer.repeats * op.repeats)
        self._number_moments(region, outer.moments[i][0] + 1)
        consts, carry = op.params["num_consts"], op.params["num_carry"]
        where = f"of scan at {op.source}"
        inputs: list[Holder] = []
        for k, t in enumerate(op.body.inputs):
            part = scan_part(op, k)
            options = demand.carried(op, k - consts) if part == "carried" else demand.entering(op, k)
            held = self._free_node(list(options), f"{part} {op.body.tensors[t].name} {where}", (part, region.path))
            operand = op.inputs[k]
            from_outside = not isinstance(operand, Constant) and outer.holders[operand].parameter
            inputs.append(Holder(held.node, held.placements, from_outside and part != "carried"))
            region.holders[t] = inputs[-1]
        for k in range(len(op.body.outputs)):
            if k < carry:
                region.results.append(inputs[consts + k])
            else:
                name = f"stacked result {k - carry} {where}"
                region.results.append(self._free_node(list(demand.stacked(op, k)), name, ("stacked", region.path)))
        region.purposes = [
            "gradient" if k >= carry and _only_update(outer.options.graph, t) else "activation"
            for k, t in enumerate(op.outputs)
        ]
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
                    held = self._free_node(options, f"{name}, in {phase}", ("copy", region.path, phase))
                    region.copies[t, phase] = Holder(held.node, held.placements, made.parameter)

    # --- edges ---------------------------------------------------------------------------------------------------

    def _edges(self, region: Region) -> None:
        graph, draft, repeats = region.options.graph, self.draft, region.repeats
        for t, tensor in enumerate(graph.tensors):
            uses = region.uses(t)
            kept = region.kept(t)
            if kept is not region.holders[t]:
                purpose = "gradient" if all(u.phase == "update" for u in uses) else "activation"
                draft.connect(region.holders[t], kept, tensor, purpose, repeats)
            phases: list[Phase] = list(dict.fromkeys(u.phase for u in uses))
            for phase in phases:
                if copy := region.copies.get((t, phase)):
                    draft.connect(kept, copy, tensor, boxing_purpose(kept, phase), repeats)
            for u in uses:
                source = region.source(t, u.phase)
                draft.connect(source, region.asking(u.i, u.k), tensor, boxing_purpose(source, u.phase), repeats)
        for operand, target, purpose in zip(graph.outputs, region.results, region.purposes, strict=True):
            if not isinstance(operand, Constant):
                draft.connect(region.kept(operand), target, graph.tensors[operand], purpose, repeats)


def boxing_purpose(source: Holder, phase: Phase) -> Purpose:
    """What moving a tensor to its readers in a phase is for."""
    if phase == "update":
        return "gradient"
    return "parameter" if source.parameter else "activation"


def _only_update(graph: Graph, t: int) -> bool:
    return all(graph.ops[i].source.phase == "update" for i, _ in graph.readers()[t])
