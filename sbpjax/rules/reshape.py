"""Moving data without computing: any partial value passes, and dimensions are traced to where their elements go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd
from typing import Any

from sbpjax.rules.notation import build, names, text
from sbpjax.rules.registry import rule
from sbpjax.rules.rule import ANY_OP, Local, Passes, Rule, Shard


def moved(
    operands: Sequence[Any],
    results: Sequence[Any],
    operand_dims: Iterable[Iterable[str]],
    result_dims: Iterable[Iterable[str]],
    *,
    local: Local | None = None,
    whole: Iterable[str] = (),
    sizes: dict[str, int] | None = None,
    fusible: bool = True,
) -> Rule:
    """The rule of an op that only moves elements: all operands are partial together, by any op."""
    return build(
        text(operand_dims, result_dims),
        operands,
        results,
        whole=whole,
        sizes=sizes,
        passes=[Passes(tuple(range(len(operands))), ANY_OP)],
        flops=0,
        local=local,
        fusible=fusible,
        fuses_operands=True,
    )


@rule("reshape")
def reshape(operands: Sequence[Any], results: Sequence[Any], *, dimensions: Any, **_: Any) -> Rule | None:
    """`"(a b) c -> a (b c)"`: the factors are those into which both shapes cut the elements in their order."""
    if dimensions is not None:  # an older JAX transposed first
        return None
    before, after, sizes, whole = common_factors(operands[0].shape, results[0].shape)
    return moved(operands, results, [before], [after], sizes=sizes, whole=whole, local=_local_reshape)


def common_factors(
    before: Sequence[int], after: Sequence[int]
) -> tuple[list[str], list[str], dict[str, int], list[str]]:
    """Factor two shapes of the same elements: words for both, sizes of the factors, and those that stay whole.

    Both shapes are read from the major end. What is left of the current dimensions shares its largest common factor;
    where one of them divides the other, that one is used up and the next dimension takes its place. Where neither
    does (6 4 and 4 6: a half of one is a half of the other, but no third is a whole number of rows), all that follows
    stays whole until both shapes have counted the same number of elements.
    """
    words: tuple[list[list[str]], list[list[str]]] = [[] for _ in before], [[] for _ in after]
    sizes: dict[str, int] = {}
    whole: list[str] = []
    if 0 in before:
        return ["_"] * len(before), ["_"] * len(after), sizes, whole

    def add(size: int, *sides: int, is_whole: bool = False) -> None:
        name = f"f{len(sizes)}"
        sizes[name] = size
        whole.extend([name] if is_whole else [])
        for side in sides:
            words[side][rests[side].dim].append(name)
            rests[side].take(size)

    rests = _Rest(before), _Rest(after)
    while rests[0].advance() and rests[1].advance():
        shared = gcd(rests[0].size, rests[1].size)
        aligned = shared in (rests[0].size, rests[1].size)
        if shared > 1:
            add(shared, 0, 1)
        if aligned:
            continue
        add(rests[0].size, 0, is_whole=True)
        add(rests[1].size, 1, is_whole=True)
        while rests[0].counted != rests[1].counted:
            behind = 0 if rests[0].counted < rests[1].counted else 1
            rests[behind].advance()
            add(rests[behind].size, behind, is_whole=True)
    return [_word(w) for w in words[0]], [_word(w) for w in words[1]], sizes, whole


class _Rest:
    """What is left of a shape that is read from the major end."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = shape
        self.dim = -1
        self.size = 1
        self.counted = 1

    def advance(self) -> bool:
        """Go to the next dimension that has something left; false at the end."""
        while self.size == 1:
            if self.dim + 1 == len(self.shape):
                return False
            self.dim += 1
            self.size = self.shape[self.dim]
        return True

    def take(self, factor: int) -> None:
        self.size //= factor
        self.counted *= factor


def _word(factors: Sequence[str]) -> str:
    return "_" if not factors else factors[0] if len(factors) == 1 else f"({' '.join(factors)})"


def _local_reshape(shard: Shard, x: Any) -> Any:
    return shard.bind(x, new_sizes=shard.local_result(), sharding=None)


@rule("broadcast_in_dim")
def broadcast_in_dim(
    operands: Sequence[Any], results: Sequence[Any], *, broadcast_dimensions: Sequence[int], **_: Any
) -> Rule | None:
    """`"i -> i j"`: a new dimension may be split though the operand is whole."""
    if len(operands) > 1:  # sizes known at run time only
        return None
    (operand,), (result,) = operands, results
    dims = names(len(result.shape))
    repeated = [
        dims[d] if size == result.shape[d] else "_" for d, size in zip(broadcast_dimensions, operand.shape, strict=True)
    ]
    return moved(operands, results, [repeated], [dims], local=_local_broadcast)


def _local_broadcast(shard: Shard, x: Any) -> Any:
    return shard.bind(x, shape=shard.local_result(), sharding=None)


@rule("transpose")
def transpose(operands: Sequence[Any], results: Sequence[Any], *, permutation: Sequence[int], **_: Any) -> Rule:
    """`"i j k -> k i j"`."""
    dims = names(len(permutation))
    return moved(operands, results, [dims], [[dims[d] for d in permutation]], fusible=False)


@rule("squeeze")
def squeeze(operands: Sequence[Any], results: Sequence[Any], *, dimensions: Sequence[int], **_: Any) -> Rule:
    """`"i _ j -> i j"`."""
    dims = names(len(operands[0].shape))
    return moved(operands, results, [dims], [[name for d, name in enumerate(dims) if d not in dimensions]])


@rule("rev")
def rev(operands: Sequence[Any], results: Sequence[Any], *, dimensions: Sequence[int], **_: Any) -> Rule:
    """What is reversed stays whole: the first shard's elements end up on the last device."""
    dims = ["_" if d in dimensions else name for d, name in enumerate(names(len(operands[0].shape)))]
    return moved(operands, results, [dims], [dims])


@rule("concatenate")
def concatenate(operands: Sequence[Any], results: Sequence[Any], *, dimension: int, **_: Any) -> Rule:
    """All but the concatenated dimension are parallel."""
    dims = _all_but(dimension, len(results[0].shape))
    return moved(operands, results, [dims] * len(operands), [dims])


@rule("split")
def split(operands: Sequence[Any], results: Sequence[Any], *, axis: int, **_: Any) -> Rule:
    """The mirror of `concatenate`."""
    dims = _all_but(axis, len(operands[0].shape))
    return moved(operands, results, [dims], [dims] * len(results))


@rule("stack")
def stack(operands: Sequence[Any], results: Sequence[Any], *, axis: int, **_: Any) -> Rule:
    """The new dimension counts the operands."""
    dims = _all_but(axis, len(results[0].shape))
    return moved(operands, results, [[*dims[:axis], *dims[axis + 1 :]]] * len(operands), [dims])


@rule("unstack")
def unstack(operands: Sequence[Any], results: Sequence[Any], *, axis: int, **_: Any) -> Rule:
    """The mirror of `stack`."""
    dims = _all_but(axis, len(operands[0].shape))
    return moved(operands, results, [dims], [[*dims[:axis], *dims[axis + 1 :]]] * len(results))


def _all_but(whole: int, rank: int) -> list[str]:
    return ["_" if d == whole else name for d, name in enumerate(names(rank))]


@rule("tile")
def tile(operands: Sequence[Any], results: Sequence[Any], *, reps: Sequence[int], **_: Any) -> Rule:
    """`"i -> (r i)"`: copies one after the other."""
    dims = names(len(reps))
    tiled = [
        name if n == 1 else f"({copies} {name})"
        for name, copies, n in zip(dims, names(len(reps), "r"), reps, strict=True)
    ]
    return moved(operands, results, [dims], [tiled], local=_local_tile)


def _local_tile(shard: Shard, x: Any) -> Any:
    reps = [size // own for size, own in zip(shard.local_result(), x.shape, strict=True)]
    return shard.bind(x, reps=tuple(reps))
