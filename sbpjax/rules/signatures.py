"""From a rule to its signatures: every way in which the axes of a mesh may share an op.

Each mesh axis chooses for itself: it leaves the op alone (all operands whole), or splits one factor, or passes partial
operands through. A choice for all axes is a signature if factors divide, if what is split lies in one piece, and if
no tensor would be partial with two ops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, TypeAlias

from sbpjax.rules.rule import Dims, Rule, Signature
from sbpjax.sbp import CombineOp, MeshShape, Placement

_Split: TypeAlias = str
_Pass: TypeAlias = tuple[tuple[int, ...], CombineOp]
_Choice: TypeAlias = _Split | _Pass | None


def signatures(
    rule: Rule, mesh: MeshShape, operand_shapes: Sequence[Sequence[int]], result_shapes: Sequence[Sequence[int]]
) -> tuple[Signature, ...]:
    """All signatures of an op on a mesh, without repetition, in a fixed order; the first leaves everything whole.

    Axes that split the same factor do so in mesh order, and the axes of one dimension always stand in mesh order, so
    that neighbours agree. An axis of size 1 takes no part.

    Args:
        rule: the op's rule.
        mesh: axis sizes, major to minor.
        operand_shapes, result_shapes: global shapes; a signature that does not divide them is left out.
    """
    return _signatures(rule, tuple(mesh.items()), tuple(map(tuple, operand_shapes)), tuple(map(tuple, result_shapes)))


def replicated(operands: Sequence[Any], results: Sequence[Any]) -> Signature:
    """The signature of an op that every device computes whole; from abstract values."""
    return Signature(
        tuple(Placement.broadcast(len(a.shape)) for a in operands),
        tuple(Placement.broadcast(len(a.shape)) for a in results),
    )


@lru_cache(maxsize=1 << 14)
def _signatures(
    rule: Rule,
    mesh_items: tuple[tuple[str, int], ...],
    operand_shapes: tuple[tuple[int, ...], ...],
    result_shapes: tuple[tuple[int, ...], ...],
) -> tuple[Signature, ...]:
    mesh = dict(mesh_items)
    axes = [axis for axis, size in mesh_items if size > 1]
    found: dict[Signature, None] = {}
    for choice in product(*(_choices(rule, mesh[axis]) for axis in axes)):
        signature = _signature(rule, mesh, dict(zip(axes, choice, strict=True)))
        if signature is not None and _divides(signature, mesh, operand_shapes, result_shapes):
            found[signature] = None
    return tuple(found)


def _choices(rule: Rule, size: int) -> Iterator[_Choice]:
    yield None
    for factor, n in rule.sizes.items():
        if factor not in rule.whole and n and n % size == 0:
            yield factor
    for p in rule.passes:
        for op in p.ops:
            yield p.operands, op


def _signature(rule: Rule, mesh: MeshShape, choice: Mapping[str, _Choice]) -> Signature | None:
    """The placements that follow from the choice of each axis, or None where they contradict each other."""
    splits: dict[str, list[str]] = {}
    operand_partial: list[dict[str, CombineOp]] = [{} for _ in rule.operands]
    result_partial: list[dict[str, CombineOp]] = [{} for _ in rule.results]
    for axis, chosen in choice.items():
        if isinstance(chosen, str):
            splits.setdefault(chosen, []).append(axis)
            op = rule.reductions.get(chosen, "sum")
            for dims, partial in zip(rule.results, result_partial, strict=True):
                if not any(chosen in factors for factors in dims):
                    partial[axis] = op
        elif chosen is not None:
            positions, op = chosen
            for k in positions:
                operand_partial[k][axis] = op
            for partial in result_partial:
                partial[axis] = op
    order = {axis: i for i, axis in enumerate(mesh)}
    parts = {factor: _product(mesh[axis] for axis in axes) for factor, axes in splits.items()}
    if any(rule.sizes[factor] % n for factor, n in parts.items()):
        return None
    placements = [
        _placement(dims, partial, splits, parts, rule.sizes, order)
        for dims, partial in zip([*rule.operands, *rule.results], [*operand_partial, *result_partial], strict=True)
    ]
    if None in placements:
        return None
    n = len(rule.operands)
    return Signature(tuple(placements[:n]), tuple(placements[n:]))  # type: ignore[arg-type]


def _placement(
    dims: Dims,
    partial: Mapping[str, CombineOp],
    splits: Mapping[str, Sequence[str]],
    parts: Mapping[str, int],
    sizes: Mapping[str, int],
    order: Mapping[str, int],
) -> Placement | None:
    if len(set(partial.values())) > 1:
        return None
    axes_of: list[tuple[str, ...]] = []
    for factors in dims:
        axes: list[str] = []
        one_piece = True  # all factors to the left are cut down to size 1
        for factor in factors:
            if factor in splits:
                if not one_piece:
                    return None
                axes += splits[factor]
            one_piece = one_piece and parts.get(factor, 1) == sizes[factor]
        if axes != sorted(axes, key=order.__getitem__):
            return None
        axes_of.append(tuple(axes))
    return _shared(tuple(axes_of), tuple(sorted(partial)), next(iter(partial.values()), None))


@lru_cache(maxsize=1 << 14)
def _shared(dims: tuple[tuple[str, ...], ...], partial: tuple[str, ...], op: CombineOp | None) -> Placement:
    """One object for equal placements: they are hashed and compared often."""
    return Placement(dims, partial, op)


def _divides(
    signature: Signature,
    mesh: MeshShape,
    operand_shapes: tuple[tuple[int, ...], ...],
    result_shapes: tuple[tuple[int, ...], ...],
) -> bool:
    placed = [
        *zip(signature.operands, operand_shapes, strict=True),
        *zip(signature.results, result_shapes, strict=True),
    ]
    return all(placement.divides(shape, mesh) for placement, shape in placed)


def _product(numbers: Iterator[int]) -> int:
    n = 1
    for number in numbers:
        n *= number
    return n
