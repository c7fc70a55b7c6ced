"""Boxing: turning one placement of a tensor into another, as the cheapest path of steps.

Placements are the nodes of a graph, steps (`sbpjax.steps`) its edges. A step's time is affine in the tensor's bytes, so
the graph is built once for each mesh and rank; a tensor's size only weighs its edges and takes out the placements that
do not divide its shape. The route found is both what is priced and what is emitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, permutations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from sbpjax.cluster import Links
from sbpjax.sbp import CombineOp, MeshShape, Placement
from sbpjax.steps import COLLECTIVES as COLLECTIVES
from sbpjax.steps import Stand, permutation, permutation_class, placements, stands, steps_from
from sbpjax.steps import Step as Step

TIE = 1e-12
"""What each step weighs beyond its time, as a share of the dearest: of equally fast routes, the shortest is taken."""

AT_ONCE = 100
"""Graphs of so many placements are searched from all of them at once: a call costs more than its search."""


@dataclass(frozen=True)
class Route:
    """A boxing as a program of steps. Mesh axes of size 1 take no part in it.

    Attributes:
        steps: what to do, in order; none where nothing needs to change.
        placements: the placement after each step, without mesh axes of size 1; the last is the target's.
        seconds: the time of all steps; infinite where the source or the target does not divide the shape.
        peak_bytes: the most that intermediate results occupy at once on one device, source and result not counted.
        step_seconds: the time of each step; 0 for local ones.
        step_bytes: for each step the larger of its operand and its result on one device.
    """

    steps: tuple[Step, ...] = ()
    placements: tuple[Placement, ...] = ()
    seconds: float = 0.0
    peak_bytes: int = 0
    step_seconds: tuple[float, ...] = ()
    step_bytes: tuple[int, ...] = ()

    def __str__(self) -> str:
        return ", ".join(map(str, self.steps)) or "nothing"


def route(source: Placement, target: Placement, shape: Sequence[int], itemsize: int, links: Links) -> Route:
    """The fastest way from one placement of a tensor to another; of equally fast ones, that of the fewest steps.

    Args:
        source, target: placements on the mesh of `links`.
        shape: the whole tensor's shape.
        itemsize: bytes of one element.
        links: the mesh and its links.

    Returns:
        The same route for the same arguments, always. One of infinite time where a placement does not divide the shape.

    Example:
        >>> from sbpjax.cluster import Cluster
        >>> links = Links(Cluster.parse("8xh100"), {"data": 2, "model": 4})
        >>> rows, columns = (Placement.parse(f"data=S({d}) model=S({d})", 2) for d in (0, 1))
        >>> print(route(rows, columns, (4096, 4096), 2, links))
        all_to_all(data+model dim 0 to 1)
        >>> print(route(Placement.parse("model=P(sum)", 2), rows, (4096, 4096), 2, links))
        slice(data dim 0), reduce_scatter(model dim 0)
    """
    return _route(source, target, tuple(shape), itemsize, links)


@lru_cache(maxsize=1 << 16)
def _route(source: Placement, target: Placement, shape: tuple[int, ...], itemsize: int, links: Links) -> Route:
    problem = _sized({_op(source, links.mesh), _op(target, links.mesh)}, shape, itemsize, links)
    start, end = problem.number(source), problem.number(target)
    if start is None or end is None:
        return Route(seconds=math.inf)
    moves = problem.moves
    chain = [end]
    before = problem.before(start)
    while chain[-1] != start:
        chain.append(int(before[chain[-1]]))
    chain.reverse()
    edges = [moves.edge_of[pair] for pair in pairwise(chain)]
    seconds = tuple(float(problem.seconds[e]) for e in edges)
    held = [round(problem.bytes * moves.fractions[node]) for node in chain]
    # While step i runs its operand and its result are alive; the first operand and the last result are the caller's.
    inner = [0, *held[1:-1], 0]
    return Route(
        steps=tuple(map(problem.step, edges)),
        placements=tuple(problem.placement(node) for node in chain[1:]),
        seconds=sum(seconds),
        peak_bytes=max((a + b for a, b in pairwise(inner)), default=0),
        step_seconds=seconds,
        step_bytes=tuple(max(a, b) for a, b in pairwise(held)),
    )


def table(
    sources: Sequence[Placement],
    targets: Sequence[Placement],
    shape: Sequence[int],
    itemsize: int,
    links: Links,
    share: Callable[[tuple[str, ...]], float] | None = None,
) -> NDArray[np.float64]:
    """Seconds of the routes from every source to every target; infinite where one does not divide the shape.

    Args:
        sources, targets: the rows and the columns.
        shape, itemsize, links: as for `route`.
        share: what part of a collective over given axes counts (its exposed share). Routes are the fastest, whatever
            counts of them.
    """
    result = np.full((len(sources), len(targets)), math.inf)
    # A route may pass through partial placements only where its ends are partial: block by block of combining ops.
    for row_op, rows in _by_op(sources, links.mesh):
        for column_op, columns in _by_op(targets, links.mesh):
            problem = _sized({row_op, column_op}, tuple(shape), itemsize, links)
            starts = {i: n for i in rows if (n := problem.number(sources[i])) is not None}
            ends = {j: n for j in columns if (n := problem.number(targets[j])) is not None}
            if starts and ends:
                result[np.ix_([*starts], [*ends])] = problem.totals([*starts.values()], [*ends.values()], share)
    return result


def _by_op(placements: Sequence[Placement], mesh: MeshShape) -> Iterable[tuple[CombineOp | None, list[int]]]:
    groups: dict[CombineOp | None, list[int]] = {}
    for i, placement in enumerate(placements):
        groups.setdefault(_op(placement, mesh), []).append(i)
    return groups.items()


def _op(placement: Placement, mesh: MeshShape) -> CombineOp | None:
    """How its partial values combine; None if it is partial only over axes of size 1."""
    return placement.op if any(mesh[a] > 1 for a in placement.partial) else None


class _Moves:
    """All placements of a rank over the axes of a mesh, and all steps between them, for tensors of any size."""

    def __init__(self, rank: int, axes: tuple[str, ...], ops: tuple[CombineOp, ...], links: Links) -> None:
        self.mesh = mesh = {a: links.mesh[a] for a in axes}
        self.nodes = list(placements(rank, axes, ops))
        self.number = {p: i for i, p in enumerate(self.nodes)}
        self.shards = np.array([p.shards(mesh) for p in self.nodes], dtype=np.int64).reshape(len(self.nodes), rank)
        self.fractions = np.array([p.fraction(mesh) for p in self.nodes])
        edges = sorted(self._edges(axes, ops, mesh), key=lambda edge: edge[:2])
        # Permutations without their devices, which only those that are taken get (`_Sized.step`).
        self.steps = [step for _, _, step in edges]
        self.sources = np.array([s for s, _, _ in edges], dtype=np.int32)
        self.targets = np.array([t for _, t, _ in edges], dtype=np.int32)
        self.edge_of = {(s, t): e for e, (s, t, _) in enumerate(edges)}
        self.keys = self.sources.astype(np.int64) * len(self.nodes) + self.targets
        local = (0.0, 0.0)
        prices = [links.affine(s.kind, s.axes) if s.kind in COLLECTIVES else local for s in self.steps]
        self.latency = np.array([latency for latency, _ in prices])
        larger = np.maximum(self.fractions[self.sources], self.fractions[self.targets]) if edges else np.zeros(0)
        self.seconds_per_byte = np.array([rate for _, rate in prices]) * larger

    def _edges(
        self, axes: tuple[str, ...], ops: tuple[CombineOp, ...], mesh: MeshShape
    ) -> Iterable[tuple[int, int, Step]]:
        classes: dict[tuple[object, ...], list[tuple[int, tuple[Stand, ...]]]] = {}
        for i, placement in enumerate(self.nodes):
            for step, after in steps_from(placement, axes, ops):
                yield i, self.number[after], step
            classes.setdefault(permutation_class(placement, mesh), []).append((i, stands(placement, mesh)))
        for alike in classes.values():
            for (i, before), (j, after) in permutations(alike, 2):
                yield i, j, Step("permute", tuple(a for a, s, t in zip(mesh, before, after, strict=True) if s != t))


@lru_cache(maxsize=256)
def _moves(rank: int, axes: tuple[str, ...], ops: tuple[CombineOp, ...], links: Links) -> _Moves:
    return _Moves(rank, axes, ops, links)


class _Sized:
    """The graph of steps for one tensor: weighed by its bytes, without the placements that do not divide it.

    Dimensions that no axis divides are left out (`dims` are those that stay), as are axes of size 1.
    """

    def __init__(
        self, moves: _Moves, dims: tuple[int, ...], sizes: tuple[int, ...], rank: int, axes: frozenset[str], nbytes: int
    ) -> None:
        self.moves, self.dims, self.rank, self.axes, self.bytes = moves, dims, rank, axes, nbytes
        self.seconds = moves.latency + moves.seconds_per_byte * nbytes
        self.divides = (np.array(sizes, dtype=np.int64) % moves.shards == 0).all(axis=1)
        kept = self.divides[moves.sources] & self.divides[moves.targets]
        weights = self.seconds[kept]
        weights = weights + TIE * max(1.0, weights.max(initial=0.0))
        ends = np.concatenate([[0], np.cumsum(np.bincount(moves.sources[kept], minlength=len(moves.nodes)))])
        size = (len(moves.nodes),) * 2
        self.graph = csr_array((weights, moves.targets[kept], ends.astype(np.int32)), shape=size)
        self.trees: dict[int, NDArray[np.int32]] = {}

    def number(self, placement: Placement) -> int | None:
        """The node of a placement of full rank; None if it does not divide."""
        axes = self.axes
        if any(a in axes for d, split in enumerate(placement.dims) if d not in self.dims for a in split):
            return None
        dims = tuple(tuple(a for a in placement.dims[d] if a in axes) for d in self.dims)
        partial = tuple(a for a in placement.partial if a in axes)
        found = self.moves.number[Placement(dims, partial, placement.op if partial else None)]
        return found if self.divides[found] else None

    def placement(self, node: int) -> Placement:
        """The placement of full rank of a node."""
        found = self.moves.nodes[node]
        dims: list[tuple[str, ...]] = [()] * self.rank
        for d, split in zip(self.dims, found.dims, strict=True):
            dims[d] = split
        return Placement(tuple(dims), found.partial, found.op)

    def step(self, edge: int) -> Step:
        """The step of an edge, with the tensor's own dimensions."""
        moves = self.moves
        step = moves.steps[edge]
        if step.kind == "permute":
            return permutation(moves.nodes[moves.sources[edge]], moves.nodes[moves.targets[edge]], moves.mesh)
        dim = None if step.dim is None else self.dims[step.dim]
        to_dim = None if step.to_dim is None else self.dims[step.to_dim]
        return Step(step.kind, step.axes, dim, to_dim, step.op)

    def before(self, start: int) -> NDArray[np.int32]:
        """For each node, the one before it on the cheapest path from `start`."""
        self._grow([start])
        return self.trees[start]

    def _grow(self, starts: Sequence[int]) -> None:
        missing = [s for s in dict.fromkeys(starts) if s not in self.trees]
        if missing:
            if len(self.moves.nodes) <= AT_ONCE:
                missing = [n for n in range(len(self.moves.nodes)) if n not in self.trees]
            _, before = dijkstra(self.graph, indices=missing, return_predecessors=True)
            self.trees.update(zip(missing, before, strict=True))

    def totals(
        self, starts: Sequence[int], ends: Sequence[int], share: Callable[[tuple[str, ...]], float] | None
    ) -> NDArray[np.float64]:
        """What counts of the seconds from every start to every end."""
        self._grow(starts)
        before = np.stack([self.trees[s] for s in starts]).astype(np.int64)
        counted = self.seconds if share is None else self.seconds * self._shares(share)
        total = np.zeros((len(starts), len(ends)))
        row, column = np.indices(total.shape).reshape(2, -1)
        origin, node = np.array(starts)[row], np.array(ends)[column]
        # Walk all paths back from their ends, one step at a time, those that have arrived dropping out.
        while True:
            away = node != origin
            row, column, origin, node = row[away], column[away], origin[away], node[away]
            if not len(node):
                return total
            previous = before[row, node]
            total[row, column] += counted[np.searchsorted(self.moves.keys, previous * len(self.moves.nodes) + node)]
            node = previous

    def _shares(self, share: Callable[[tuple[str, ...]], float]) -> NDArray[np.float64]:
        of = {axes: share(axes) for axes in {s.axes for s in self.moves.steps if s.kind in COLLECTIVES}}
        return np.array([of.get(s.axes, 1.0) for s in self.moves.steps])


def _sized(ops: set[CombineOp | None], shape: tuple[int, ...], itemsize: int, links: Links) -> _Sized:
    axes = tuple(a for a, size in links.mesh.items() if size > 1)
    dims = tuple(d for d, size in enumerate(shape) if any(size % links.mesh[a] == 0 for a in axes))
    return _sized_for(dims, shape, axes, tuple(sorted(op for op in ops if op is not None)), itemsize, links)


@lru_cache(maxsize=512)
def _sized_for(
    dims: tuple[int, ...],
    shape: tuple[int, ...],
    axes: tuple[str, ...],
    ops: tuple[CombineOp, ...],
    itemsize: int,
    links: Links,
) -> _Sized:
    moves = _moves(len(dims), axes, ops, links)
    nbytes = math.prod(shape) * itemsize
    return _Sized(moves, dims, tuple(shape[d] for d in dims), len(shape), frozenset(axes), nbytes)
