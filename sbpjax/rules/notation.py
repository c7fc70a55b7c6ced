"""Rules as text: `"b i k, b k j -> b i j"`, parsed once and fitted to an op's shapes.

Each word is one dimension and names its factor. `(a b)` is a compound dimension of several factors, major to minor;
`_` is a dimension that no axis may split; `...` stands for the dimensions that all tensors with an ellipsis share, in
front of, between or behind the named ones. The notation is Shardy's, as JAX's `sharding_rule` strings write it.

>>> import jax, numpy as np
>>> x, w = jax.ShapeDtypeStruct((4, 6), np.float32), jax.ShapeDtypeStruct((6, 8), np.float32)
>>> dict(build("i k, k j -> i j", [x, w], [jax.ShapeDtypeStruct((4, 8), np.float32)]).sizes)
{'i': 4, 'k': 6, 'j': 8}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from sbpjax.errors import InvalidRule
from sbpjax.rules.rule import Dims, Local, Passes, Rule
from sbpjax.sbp import COMBINE_OPS, CombineOp

ELLIPSIS: Final = "..."
Sides: TypeAlias = tuple[tuple[Dims, ...], tuple[Dims, ...]]

_DIMENSION = re.compile(r"\s*(?:\(([^()]*)\)|(\.\.\.)|([A-Za-z_]\w*))")
_FACTOR = re.compile(r"[A-Za-z_]\w*")


def names(rank: int, prefix: str = "d") -> list[str]:
    """Factor names for the dimensions of one tensor: `["d0", "d1", ...]`."""
    return [f"{prefix}{i}" for i in range(rank)]


def text(operands: Iterable[Iterable[str]], results: Iterable[Iterable[str]]) -> str:
    """The notation for dimensions given as words: `text([["i", "k"]], [["i"]])` is `"i k -> i"`."""
    return ", ".join(map(" ".join, operands)) + " -> " + ", ".join(map(" ".join, results))


def build(
    notation: str,
    operands: Sequence[Any],
    results: Sequence[Any],
    *,
    reductions: Mapping[str, CombineOp] | None = None,
    whole: Iterable[str] = (),
    passes: Iterable[Passes] = (),
    sizes: Mapping[str, int] | None = None,
    flops: float | None = None,
    local: Local | None = None,
    fusible: bool = False,
    fuses_operands: bool = False,
) -> Rule:
    """The rule that `notation` states for an op with these operands and results.

    What a dtype cannot do is left out by itself: booleans and keys are never P(sum), complex numbers and keys never
    P(max) or P(min). A pass is dropped for such an op, and a factor whose split would ask for it is whole.

    Args:
        notation: `"b i k, b k j -> b i j"`; one part for each operand and result, blank for a scalar.
        operands, results: abstract values (`.shape`, `.dtype`).
        reductions: how results combine over a factor that they lack, where it is not by sum.
        whole: factors that no axis may split.
        passes: the ways in which partial operands pass through.
        sizes: sizes of factors that shapes do not tell; of a compound dimension's factors one may be missing.
        flops, local, fusible, fuses_operands: as in `Rule`.

    Raises:
        InvalidRule: the notation cannot be read or does not fit the shapes.
    """
    fit = _Fit(notation, operands, results)
    operand_dims, result_dims = fit.dims()
    found = fit.sizes(operand_dims, result_dims, dict(sizes or {}))
    reductions = dict(reductions or {})
    whole = set(whole)
    fit.check_factors("reductions", reductions, found)
    fit.check_factors("whole", whole, found)

    for factor in found:
        op = reductions.get(factor, "sum")
        lacking = (aval for aval, dims in zip(results, result_dims, strict=True) if not _carries(dims, factor))
        if not all(op in combinable(aval) for aval in lacking):
            whole.add(factor)

    possible = []
    for p in passes:
        if not all(0 <= k < len(operands) for k in p.operands):
            raise fit.error(f"passes names operands {p.operands}, but there are {len(operands)}")
        partial = [*(operands[k] for k in p.operands), *results]
        ops: tuple[CombineOp, ...] = tuple(op for op in p.ops if all(op in combinable(a) for a in partial))
        if ops and p.operands:
            possible.append(Passes(p.operands, ops))

    return Rule(
        operands=operand_dims,
        results=result_dims,
        sizes=found,
        reductions=reductions,
        whole=frozenset(whole),
        passes=tuple(possible),
        flops=flops,
        local=local,
        fusible=fusible,
        fuses_operands=fuses_operands,
    )


def combinable(aval: Any) -> tuple[CombineOp, ...]:
    """The ops by which parts of such a tensor can be combined: `P(op)` makes sense for these alone."""
    return _combinable(aval.dtype)


@cache
def _combinable(dtype: Any) -> tuple[CombineOp, ...]:
    if jnp.issubdtype(dtype, jax.dtypes.extended):
        return ()
    if jnp.issubdtype(dtype, np.complexfloating):
        return ("sum",)
    if jnp.issubdtype(dtype, np.bool_):
        return ("max", "min")
    return COMBINE_OPS


@lru_cache(maxsize=4096)
def parse(notation: str) -> Sides:
    """The dimensions that a notation names, operands and results; an ellipsis is the one factor `"..."`.

    Raises:
        InvalidRule: it cannot be read; the message points at the place.
    """
    left, arrow, right = notation.partition("->")
    if not arrow or "->" in right:
        raise InvalidRule(f"notation {notation!r}: write 'operands -> results' with one arrow")
    return _parse_side(left, notation), _parse_side(right, notation)


def _parse_side(side: str, notation: str) -> tuple[Dims, ...]:
    return tuple(_parse_tensor(part, notation) for part in side.split(","))


def _parse_tensor(part: str, notation: str) -> Dims:
    dims: list[tuple[str, ...]] = []
    at = 0
    part = part.strip()
    while at < len(part):
        found = _DIMENSION.match(part, at)
        if not found:
            raise InvalidRule(
                f"notation {notation!r}: cannot read {part[at:].strip()!r}; a dimension is name, _, (a b) or ..."
            )
        compound, ellipsis, name = found.groups()
        factors = (ELLIPSIS,) if ellipsis else (name,) if name else tuple(compound.split())
        if bad := [f for f in factors if f != ELLIPSIS and not _FACTOR.fullmatch(f)]:
            raise InvalidRule(f"notation {notation!r}: {bad[0]!r} is not a factor's name")
        dims.append(() if factors == ("_",) else factors)
        at = found.end()
    used = [f for dim in dims for f in dim]
    if twice := next((f for f in used if used.count(f) > 1), None):
        raise InvalidRule(f"notation {notation!r}: {twice!r} stands twice in {part!r}")
    return tuple(dims)


def _carries(dims: Dims, factor: str) -> bool:
    return any(factor in dim for dim in dims)


class _Fit:
    """A notation and the shapes it must fit; every error passes through here and names both."""

    def __init__(self, notation: str, operands: Sequence[Any], results: Sequence[Any]) -> None:
        self.notation = notation
        self.shapes = [*(("operand", i, tuple(a.shape)) for i, a in enumerate(operands))]
        self.shapes += [*(("result", i, tuple(a.shape)) for i, a in enumerate(results))]
        self.counts = len(operands), len(results)

    def error(self, what: str) -> InvalidRule:
        shapes = ", ".join(f"{side} {i} {shape}" for side, i, shape in self.shapes)
        return InvalidRule(f"rule {self.notation!r} does not fit {shapes}: {what}")

    def check_factors(self, argument: str, factors: Iterable[str], sizes: Mapping[str, int]) -> None:
        for factor in factors:
            if factor not in sizes:
                raise self.error(f"{argument} names factor {factor!r}, which the notation lacks")

    def dims(self) -> Sides:
        """The notation's dimensions with ellipses written out, checked against number of tensors and their ranks."""
        sides = parse(self.notation)
        # A blank side is one scalar, or nothing at all where the op has nothing there (iota has no operands).
        sides = tuple(() if n == 0 and side == ((),) else side for side, n in zip(sides, self.counts, strict=True))
        for side, n, what in zip(sides, self.counts, ("operands", "results"), strict=True):
            if len(side) != n:
                raise self.error(f"it names {len(side)} {what}, the op has {n}")
        spare = None
        written = []
        for dims, (side, i, shape) in zip([*sides[0], *sides[1]], self.shapes, strict=True):
            if (ELLIPSIS,) in dims:
                n = len(shape) - (len(dims) - 1)
                if n < 0 or spare not in (None, n):
                    raise self.error(
                        f"the ellipsis of {side} {i} stands for {n} dimensions, elsewhere for {spare or 0}"
                    )
                spare = n
                k = dims.index((ELLIPSIS,))
                dims = (*dims[:k], *((f"_dots{j}",) for j in range(n)), *dims[k + 1 :])
            if len(dims) != len(shape):
                raise self.error(f"{side} {i} has {len(shape)} dimensions, the notation {len(dims)}")
            written.append(dims)
        return tuple(written[: self.counts[0]]), tuple(written[self.counts[0] :])

    def sizes(self, operands: Sequence[Dims], results: Sequence[Dims], known: dict[str, int]) -> dict[str, int]:
        """Each factor's size, in order of appearance."""
        pending = [
            (factors, size, f"{side} {i} dimension {d}")
            for dims, (side, i, shape) in zip([*operands, *results], self.shapes, strict=True)
            for d, (factors, size) in enumerate(zip(dims, shape, strict=True))
            if factors
        ]
        order = dict.fromkeys(f for factors, _, _ in pending for f in factors)
        self.check_factors("sizes", known, dict.fromkeys(order, 0))
        while pending:
            waiting = []
            for factors, size, where in pending:
                unknown = [f for f in factors if f not in known]
                product = int(np.prod([known[f] for f in factors if f in known], dtype=np.int64))
                if len(unknown) > 1:
                    waiting.append((factors, size, where))
                elif unknown and (product == 0 or size % product):
                    raise self.error(f"{where} is {size}, not a multiple of {product}")
                elif unknown:
                    known[unknown[0]] = size // product
                elif product != size:
                    raise self.error(f"{where} is {size}, but {' '.join(factors)} is {product}")
            if len(waiting) == len(pending):
                raise self.error(
                    f"the sizes of {' '.join(waiting[0][0])} in {waiting[0][2]} are unknown; give `sizes=`"
                )
            pending = waiting
        return {factor: known[factor] for factor in order}
