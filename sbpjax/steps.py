"""The single steps of a boxing: what one collective, or one local op, makes of a placement.

Collectives move data between devices; local steps only cut, mask or pad what a device holds. A dimension that is split
by several axes is ordered, so only its minor-most axes peel off, and an axis that joins becomes the minor-most.

| step           | change on its axes        | who moves what                                     |
|----------------|---------------------------|----------------------------------------------------|
| all_reduce     | P -> B                    | combines what the axes' devices hold               |
| reduce_scatter | P(sum) -> S(d)            | the same, and each keeps its part                  |
| all_gather     | S(d) -> B                 | a suffix of the axes that split d                  |
| all_to_all     | S(d) -> S(e)              | a suffix of the axes that split d                  |
| permute        | axes change places        | every device sends all it holds to one other       |
| slice          | B -> S(d)                 | nothing moves: cut out one's own part              |
| mask           | B -> P                    | nothing moves: all but one drop it, if it is a sum |
| pad            | S(d) -> P                 | nothing moves: surround one's part with neutrals   |
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, product
from typing import Final, Literal, TypeAlias

from sbpjax.sbp import CombineOp, MeshShape, Placement

Kind: TypeAlias = Literal["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "permute", "slice", "mask", "pad"]

Stand: TypeAlias = tuple[str, int, int]
"""Where a mesh axis stands in a placement: `("S", dimension, stride)`, `("B", 0, 0)` or `("P", 0, 0)`."""

COLLECTIVES: Final = frozenset({"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "permute"})
"""Steps that communicate; each is emitted as exactly one collective. The others are local."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a boxing.

    Attributes:
        kind: see the table above.
        axes: the mesh axes that take part, major to minor.
        dim: the dimension that is scattered, gathered, cut or padded; None where no dimension changes.
        to_dim: the dimension that an all-to-all splits instead of `dim`.
        op: how partial values combine (all_reduce, reduce_scatter, mask, pad).
        pairs: a permutation's (source, destination) devices, numbered along `axes`, major to minor.
    """

    kind: Kind
    axes: tuple[str, ...]
    dim: int | None = None
    to_dim: int | None = None
    op: CombineOp | None = None
    pairs: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        where = "" if self.dim is None else f" dim {self.dim}" + ("" if self.to_dim is None else f" to {self.to_dim}")
        return f"{self.kind}({'+'.join(self.axes)}{where})"


def placements(rank: int, axes: Sequence[str], ops: Sequence[CombineOp]) -> Iterator[Placement]:
    """All placements of a rank-`rank` tensor over `axes`, every order of axes within a dimension included."""
    for op in (None, *ops):
        roles = [-1, *range(rank)] if op is None else [-2, -1, *range(rank)]
        for assigned in product(roles, repeat=len(axes)):
            partial = tuple(a for a, role in zip(axes, assigned, strict=True) if role == -2)
            if bool(partial) != (op is not None):
                continue
            split = [[a for a, role in zip(axes, assigned, strict=True) if role == d] for d in range(rank)]
            for dims in product(*map(permutations, split)):
                yield Placement(tuple(dims), partial, op)


def steps_from(source: Placement, axes: Sequence[str], ops: Sequence[CombineOp]) -> Iterator[tuple[Step, Placement]]:
    """All steps but permutations that lead from `source`, with the placements that they lead to.

    Args:
        source: where to start.
        axes: the mesh axes, all of size 2 or more.
        ops: the combining ops of partial placements that are worth visiting.
    """
    yield from _reductions(source)
    for d, split in enumerate(source.dims):
        for n in range(1, len(split) + 1):
            suffix = split[-n:]
            gathered = _with(source, {d: split[:-n]})
            yield Step("all_gather", suffix, d), gathered
            for e in range(source.rank):
                if e != d:
                    yield Step("all_to_all", suffix, d, e), _with(gathered, {e: source.dims[e] + suffix})
    used = {*source.split_axes, *source.partial}
    free = [a for a in axes if a not in used]
    for joining in _subsets(free):
        for op in ops if source.op is None else (source.op,):
            yield Step("mask", joining, op=op), Placement(source.dims, (*source.partial, *joining), op)
        for order in permutations(joining):
            for d in range(source.rank):
                yield Step("slice", order, d), _with(source, {d: source.dims[d] + order})
    for d, split in enumerate(source.dims):
        for n in range(1, len(split) + 1):
            rest = _with(source, {d: split[:-n]})
            for op in ops if source.op is None else (source.op,):
                yield Step("pad", split[-n:], d, op=op), Placement(rest.dims, (*source.partial, *split[-n:]), op)


def _reductions(source: Placement) -> Iterator[tuple[Step, Placement]]:
    for reduced in _subsets(source.partial):
        rest = tuple(a for a in source.partial if a not in reduced)
        whole = Placement(source.dims, rest, source.op if rest else None)
        yield Step("all_reduce", reduced, op=source.op), whole
        for order in permutations(reduced) if source.op == "sum" else ():
            for d in range(source.rank):
                yield Step("reduce_scatter", order, d, op="sum"), _with(whole, {d: source.dims[d] + order})


def _subsets(axes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """All subsets but the empty one."""
    for n in range(1, len(axes) + 1):
        yield from combinations(axes, n)


def _with(placement: Placement, dims: Mapping[int, tuple[str, ...]]) -> Placement:
    """The placement with some dimensions' axes replaced."""
    changed = tuple(dims.get(d, axes) for d, axes in enumerate(placement.dims))
    return Placement(changed, placement.partial, placement.op)


def permutation_class(placement: Placement, mesh: MeshShape) -> tuple[object, ...]:
    """Placements of one class hold the same parts on different devices: a permutation turns each into any other."""
    return placement.shards(mesh), math.prod(mesh[a] for a in placement.partial), placement.op


def stands(placement: Placement, mesh: MeshShape) -> tuple[Stand, ...]:
    """Where each axis of the mesh stands."""
    found: dict[str, Stand] = {axis: ("P", 0, 0) for axis in placement.partial}
    for d, split in enumerate(placement.dims):
        stride = 1
        for axis in reversed(split):
            found[axis] = ("S", d, stride)
            stride *= mesh[axis]
    return tuple(found.get(axis, ("B", 0, 0)) for axis in mesh)


def permutation(source: Placement, target: Placement, mesh: MeshShape) -> Step:
    """The permutation of devices between two placements of one class.

    It is over the axes that stand elsewhere afterwards: an axis that cuts the same dimension at the same stride, or is
    broadcast or partial before and after, stays out of it.
    """
    before, after = stands(source, mesh), stands(target, mesh)
    axes = [a for a, b, c in zip(mesh, before, after, strict=True) if b != c]
    sizes = [mesh[a] for a in axes]
    holder = {
        held: number
        for number, held in enumerate(_parts([s for s, t in zip(before, after, strict=True) if s != t], sizes))
    }
    wanted = _parts([t for s, t in zip(before, after, strict=True) if s != t], sizes)
    return Step("permute", tuple(axes), pairs=tuple((holder[held], number) for number, held in enumerate(wanted)))


def _parts(stands: Sequence[Stand], sizes: Sequence[int]) -> Iterator[tuple[object, ...]]:
    """What each device along axes of these stands and sizes holds: its parts, its summand, its copy."""
    for coordinates in product(*map(range, sizes)):
        offsets: dict[int, int] = {}
        summand = copy = 0
        for (stand, d, stride), size, i in zip(stands, sizes, coordinates, strict=True):
            if stand == "S":
                offsets[d] = offsets.get(d, 0) + i * stride
            elif stand == "P":
                summand = summand * size + i
            else:
                copy = copy * size + i
        yield *sorted(offsets.items()), summand, copy
