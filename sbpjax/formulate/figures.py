"""The figures of a layout: collectives, ops that run whole, leaves that do not divide, time and memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from sbpjax.boxing import COLLECTIVES, route
from sbpjax.cluster import Links
from sbpjax.cost.compute import op_flops
from sbpjax.cost.estimate import Collective, Estimate, Indivisible, Unsplit
from sbpjax.cost.exposure import exposed_share
from sbpjax.cost.memory import InMemory, peak
from sbpjax.formulate.build import Formulation
from sbpjax.formulate.decode import Boxing, Decoded
from sbpjax.formulate.options import GraphOptions, OpOptions
from sbpjax.formulate.region import Region
from sbpjax.layout import Layout, scope_name
from sbpjax.program.graph import Graph, Op, Source
from sbpjax.program.program import Program
from sbpjax.sbp import MeshShape, mesh_size
from sbpjax.search.problem import Solution


def estimate(
    program: Program,
    formulation: Formulation,
    decoded: Decoded,
    solution: Solution,
    links: Links,
    limit_bytes: int,
) -> Estimate:
    """What the planner believes of a decoded solution."""
    layout = decoded.layout
    found = collectives(decoded.boxings, layout, links)
    compute = _compute_seconds(formulation, formulation.region, solution)
    # Boxings that turned out to be the same are emitted once, so the sum can be below what the solver counted.
    step = compute + _holding_seconds(formulation, solution) + sum(c.count * c.exposed_seconds for c in found)
    high = peak(program, layout, in_memory(formulation.region.options), links)
    return Estimate(
        step_seconds=step,
        bound_seconds=min(solution.bound_seconds, step),
        simulated_seconds=None,
        compute_seconds=compute,
        peak_bytes=high.bytes,
        limit_bytes=limit_bytes,
        memory=high.holders,
        collectives=found,
        unsplit=unsplit(formulation, solution, links.mesh),
        indivisible=indivisible(program, layout, links.mesh),
        method=solution.method,
        cut=solution.cut,
    )


def in_memory(options: GraphOptions) -> InMemory:
    """Which tensors go through memory, as the memory account wants it."""
    bodies = {i: in_memory(o.body) for i, o in enumerate(options.ops) if o.body is not None}
    return InMemory(options.in_memory, bodies)


def collectives(boxings: Sequence[Boxing], layout: Layout, links: Links) -> tuple[Collective, ...]:
    """Every collective that the boxings consist of."""
    found = []
    for b in boxings:
        tensor = b.graph.tensors[b.tensor]
        source, target = layout.body.at(b.path).boxed(b.tensor, b.version)
        path = route(source, target, tensor.shape, tensor.itemsize, links)
        for step, seconds, nbytes in zip(path.steps, path.step_seconds, path.step_bytes, strict=True):
            if step.kind not in COLLECTIVES:
                continue
            found.append(
                Collective(
                    kind=step.kind,
                    axes=step.axes,
                    bytes=int(nbytes),
                    count=b.repeats,
                    seconds=seconds,
                    exposed_seconds=seconds * exposed_share(b.purpose, step.axes, links),
                    tensor=tensor.name,
                    change=f"{source} -> {target}",
                    source=b.source,
                    scope=scope_name(b.path, b.tensor, b.version),
                )
            )
    return tuple(found)


def _compute_seconds(formulation: Formulation, region: Region, solution: Solution) -> float:
    seconds = formulation.problem.node_seconds
    total = sum(float(seconds[n][solution.choice[n]]) for n in region.op_nodes if n >= 0)
    return total + sum(_compute_seconds(formulation, scan.body, solution) for scan in region.scans.values())


def _holding_seconds(formulation: Formulation, solution: Solution) -> float:
    seconds = formulation.problem.node_seconds
    return sum(float(seconds[held.node][solution.choice[held.node]]) for held in formulation.inputs)


class _Whole(NamedTuple):
    """One op that runs whole on every device."""

    seconds: float
    flops: float
    bytes: int
    runs: int
    source: Source


def unsplit(formulation: Formulation, solution: Solution, mesh: MeshShape) -> tuple[Unsplit, ...]:
    """Ops on arrays that had no signature that splits anything, by primitive and reason, the dearest first."""
    found: dict[tuple[str, str], list[_Whole]] = {}

    def visit(region: Region) -> None:
        graph = region.options.graph
        for i, (op, o) in enumerate(zip(graph.ops, region.options.ops, strict=True)):
            if o.body is not None:
                visit(region.scans[i].body)
            elif not any(p.split_axes for s in o.signatures for p in (*s.operands, *s.results)):
                size = sum(graph.tensors[t].bytes for t in (*(x for x in op.inputs if isinstance(x, int)), *op.outputs))
                shapes = [graph.aval(x).shape for x in (*op.inputs, *op.outputs)]
                if any(math.prod(s) > 1 for s in shapes):
                    node = region.op_nodes[i]
                    seconds = float(formulation.problem.node_seconds[node][solution.choice[node]])
                    flops = op_flops(graph, op, o.rule) * region.repeats
                    row = _Whole(seconds, flops, size * region.repeats, region.repeats, op.source)
                    found.setdefault((op.name, _why_whole(graph, op, o)), []).append(row)

    if mesh_size(mesh) > 1:
        visit(formulation.region)
    rows = [
        Unsplit(
            primitive=primitive,
            count=sum(o.runs for o in ops),
            seconds=sum(o.seconds for o in ops),
            flops=sum(o.flops for o in ops),
            bytes=sum(o.bytes for o in ops),
            reason=reason,
            source=max(ops, key=lambda o: o.seconds).source,
        )
        for (primitive, reason), ops in found.items()
    ]
    return tuple(sorted(rows, key=lambda u: (-u.seconds, -u.bytes, u.primitive)))


def _why_whole(graph: Graph, op: Op, o: OpOptions) -> str:
    if o.rule is None:
        return "no rule for this primitive"
    factors = {f: n for f, n in o.rule.sizes.items() if n > 1}
    if not factors:
        return "no dimension that could be split"
    whole = [f for f in factors if f in o.rule.whole]
    if len(whole) == len(factors):
        return "its rule needs every dimension whole"
    sizes = ", ".join(str(n) for f, n in factors.items() if f not in o.rule.whole)
    return f"no axis divides its dimensions ({sizes})"


def indivisible(program: Program, layout: Layout, mesh: MeshShape) -> tuple[Indivisible, ...]:
    """Arguments left whole by an axis that does not divide a dimension longer than it."""
    found = []
    for t, leaf, placement in zip(program.graph.inputs, program.leaves, layout.inputs, strict=True):
        tensor = program.graph.tensors[t]
        held = tensor.bytes * placement.fraction(mesh)
        for axis, n in mesh.items():
            if n == 1 or axis in placement.split_axes:
                continue
            cut = placement.shards(mesh)
            for d, size in enumerate(tensor.shape):
                parts = n * cut[d]
                if size > parts and size % parts:
                    would_do = (size // parts + 1) * parts
                    lost = int(held * (1 - 1 / n))
                    found.append(Indivisible(leaf.path, tensor.shape, d, axis, lost, would_do))
    return tuple(sorted(found, key=lambda i: -i.bytes_lost))
