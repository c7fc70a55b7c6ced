"""Finding the layout of a program on one mesh: options, problem, solution, layout, and a memory limit that is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sbpjax.cluster import Cluster, Links
from sbpjax.cost.estimate import Estimate
from sbpjax.errors import InfeasiblePlan, InvalidStrategy
from sbpjax.formulate.build import Formulation, formulate
from sbpjax.formulate.decode import decode
from sbpjax.formulate.figures import estimate
from sbpjax.formulate.options import graph_options, placements_at_rest
from sbpjax.layout import Layout
from sbpjax.program.graph import Constant
from sbpjax.program.program import Program
from sbpjax.report.units import format_bytes
from sbpjax.sbp import MeshShape, Placement, mesh_size
from sbpjax.search.problem import Infeasible, Problem, Solution
from sbpjax.search.solve import solve
from sbpjax.strategy import Restrictions

TIGHTENINGS = 4
"""How often the limit is tightened when a layout turns out to need more memory than the search counted."""


@dataclass(frozen=True, eq=False)
class Found:
    """A layout and what is known of it."""

    layout: Layout
    estimate: Estimate


def find_layout(
    program: Program,
    cluster: Cluster,
    mesh: MeshShape,
    restrictions: Restrictions,
    limit_bytes: int,
    pinned_results: Sequence[Placement] | None = None,
) -> Found:
    """The best layout on a mesh, within a memory limit, its results where they are pinned, if they are.

    Raises:
        InfeasiblePlan: nothing fits; the message says how much would be needed, and by what.
        InvalidStrategy: the pins contradict each other or the program.
    """
    # An axis of size 1 splits nothing: it is known to users, not to the search.
    live = {axis: n for axis, n in mesh.items() if n > 1}
    links = Links(cluster, live)
    options = graph_options(program.graph, live, restrictions)
    at_rest = argument_placements(program, live, restrictions)
    results = [[p] for p in pinned_results] if pinned_results is not None else _result_placements(program, live)
    target = float(limit_bytes)
    lowest: Found | None = None
    for _ in range(TIGHTENINGS):
        formulation = formulate(program, options, at_rest, results, links, target)
        try:
            solution = solve(formulation.problem)
        except Infeasible as reason:
            if lowest is None:
                raise _explain(reason, formulation.problem, mesh, limit_bytes) from None
            break
        found = _found(program, formulation, solution, links, mesh, limit_bytes)
        if found.estimate.peak_bytes <= limit_bytes:
            return found
        if lowest is None or found.estimate.peak_bytes < lowest.estimate.peak_bytes:
            lowest = found
        target *= 0.98 * limit_bytes / found.estimate.peak_bytes
    assert lowest is not None
    raise InfeasiblePlan(
        f"no plan found that fits {format_bytes(limit_bytes)} on {mesh_size(mesh)} devices: the best one needs "
        f"{format_bytes(lowest.estimate.peak_bytes)}.\n  largest: {_largest(lowest.estimate.memory)}\n"
        f"  raise memory_limit to {format_bytes(lowest.estimate.peak_bytes)}, use more devices or rematerialise."
    )


def argument_placements(program: Program, mesh: MeshShape, restrictions: Restrictions) -> list[list[Placement]]:
    """For each argument, the placements at rest that the strategy allows; whole where none is left by a role rule."""
    every = []
    for i, (t, leaf) in enumerate(zip(program.graph.inputs, program.leaves, strict=True)):
        shape = program.graph.tensors[t].shape
        allowed = restrictions.leaf(i)
        found = placements_at_rest(shape, mesh, allowed, splittable=not _is_key(program, t))
        if not found:
            asked = ", ".join(f"{axis}={'|'.join(map(str, choices))}" for axis, choices in allowed.items())
            raise InvalidStrategy(
                f"{leaf.path} of shape {shape} cannot be placed as {asked} on mesh {dict(mesh)}: "
                "the axes together do not divide its dimensions. Allow another placement on one of the axes."
            )
        every.append(found)
    return every


def _result_placements(program: Program, mesh: MeshShape) -> list[list[Placement]]:
    """For each result, the placements at rest that it may have."""
    graph = program.graph
    return [
        [Placement.broadcast(len(operand.aval.shape))]
        if isinstance(operand, Constant)
        else placements_at_rest(graph.tensors[operand].shape, mesh, {}, splittable=not _is_key(program, operand))
        for operand in graph.outputs
    ]


def _is_key(program: Program, tensor: int) -> bool:
    return "key<" in str(program.graph.tensors[tensor].aval.dtype)


def _found(
    program: Program,
    formulation: Formulation,
    solution: Solution,
    links: Links,
    mesh: MeshShape,
    limit_bytes: int,
) -> Found:
    decoded = decode(formulation, solution.choice, mesh)
    return Found(decoded.layout, estimate(program, formulation, decoded, solution, links, limit_bytes))


def _explain(reason: Infeasible, problem: Problem, mesh: MeshShape, limit_bytes: int) -> Exception:
    if reason.least_bytes is None:
        names = "\n  ".join(problem.names[n] for n in reason.conflict) or "(no single culprit)"
        return InvalidStrategy(f"the pins contradict each other; together these have no placement:\n  {names}")
    alive = [u for u in problem.usages if u.first <= reason.moment <= u.last]
    held = sorted(((float(u.bytes.min()), problem.names[u.node]) for u in alive), reverse=True)
    largest = {name: int(size) for size, name in held[:3] if size}
    return InfeasiblePlan(
        f"no plan fits {format_bytes(limit_bytes)} on {mesh_size(mesh)} devices: at least "
        f"{format_bytes(int(reason.least_bytes))} are needed.\n  largest: {_largest(largest)}\n"
        "  raise memory_limit, use more devices or rematerialise."
    )


def _largest(holders: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {format_bytes(size)}" for name, size in list(holders.items())[:4])


def mesh_candidates(cluster: Cluster, wanted: int | None = None) -> Sequence[dict[str, int]]:
    """Mesh shapes to try when the user gave none: all devices on one axis, and two axes along the cluster's levels.

    On one node the second axis is the inner one, of 2 up to half of the devices.
    """
    n = cluster.size if wanted is None else wanted
    shapes: list[dict[str, int]] = [{"data": n}]
    inner = cluster.shape[-1] if len(cluster.shape) > 1 else None
    for size in range(2, n):
        if n % size == 0 and (inner is None or size == inner):
            shapes.append({"data": n // size, "model": size})
    return shapes
