"""Finding the layout of a program on one mesh: options, problem, solution, layout, and a memory limit that is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sbpjax.cluster import Cluster, Links
from sbpjax.cost.estimate import Estimate
from sbpjax.errors import InfeasiblePlan, InvalidStrategy
from sbpjax.formulate.build import formulate
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
from sbpjax.strategy import Relaxed, Restrictions

TIGHTENINGS = 5
"""How often the limit is tightened when a layout turns out to need more memory than the search counted."""

TIGHTER = 0.9
"""By how much it is tightened each time."""


@dataclass(frozen=True, eq=False)
class Found:
    """A layout, what is known of it, and where the strategy gave way on the way to it."""

    layout: Layout
    estimate: Estimate
    relaxed: Sequence[Relaxed] = ()


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
    formulation = formulate(program, options, at_rest, results, links)

    def found(solution: Solution) -> Found:
        decoded = decode(formulation, solution.choice, mesh)
        return Found(
            decoded.layout, estimate(program, formulation, decoded, solution, links, limit_bytes), options.relaxed
        )

    try:
        fastest = found(unlimited := solve(formulation.problem))
    except Infeasible as reason:
        raise _contradiction(reason, formulation.problem) from None
    if fastest.estimate.peak_bytes <= limit_bytes:
        return fastest
    # The problem's bytes are an estimate, so a bound that rests on its limit may be false. The bound without it holds.
    smallest = fastest
    for solution in _within(formulation.problem, limit_bytes):
        method = f"{solution.method}; bound without the memory limit"
        candidate = found(replace(solution, bound_seconds=unlimited.bound_seconds, method=method))
        if candidate.estimate.peak_bytes <= limit_bytes:
            return candidate
        smallest = min(smallest, candidate, key=lambda c: c.estimate.peak_bytes)
    needed = format_bytes(smallest.estimate.peak_bytes)
    raise InfeasiblePlan(
        f"no plan found that fits {format_bytes(limit_bytes)} on {mesh_size(mesh)} devices: the smallest needs "
        f"{needed}.\n  largest: {_largest(smallest.estimate.memory)}\n"
        f"  raise memory_limit to {needed}, use more devices or rematerialise."
    )


def _within(problem: Problem, limit_bytes: int) -> Iterator[Solution]:
    """Solutions under ever tighter limits, until they keep the limit by exact measure or the search finds no more.

    Where even the first limit cannot be kept by the problem's own count, the solution of the least bytes is tried.
    """
    target = float(limit_bytes)
    least_tried = False
    for _ in range(TIGHTENINGS):
        try:
            yield solve(replace(problem, limit_bytes=target))
        except Infeasible as reason:
            if least_tried or reason.least_bytes is None or reason.least_bytes <= target:
                return
            target, least_tried = reason.least_bytes * (1 + 1e-6), True
            continue
        target *= TIGHTER
        if least_tried:
            return


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


def _contradiction(reason: Infeasible, problem: Problem) -> InvalidStrategy:
    names = "\n  ".join(problem.names[n] for n in reason.conflict) or "(no single culprit)"
    return InvalidStrategy(f"the pins contradict each other; together these have no placement:\n  {names}")


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
