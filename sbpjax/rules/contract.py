"""Products of tensors: what is summed over is a reduction, all other dimensions are parallel."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jax.numpy as jnp

from sbpjax.rules.notation import build, names, text
from sbpjax.rules.registry import rule
from sbpjax.rules.rule import Passes, Rule, Shard

IN_EACH = (Passes((0,)), Passes((1,)))


@rule("dot_general")
def dot_general(operands: Sequence[Any], results: Sequence[Any], *, dimension_numbers: Any, **_: Any) -> Rule:
    """`"b i k, b k j -> b i j"` for any dimension numbers; linear in each operand."""
    left, right, result = _product(operands, dimension_numbers)
    flops = _flops(operands, dimension_numbers)
    return build(text([left, right], [result]), operands, results, passes=IN_EACH, flops=flops)


@rule("ragged_dot_general")
def ragged_dot_general(
    operands: Sequence[Any], results: Sequence[Any], *, ragged_dot_dimension_numbers: Any, **_: Any
) -> Rule:
    """A product whose rows (or summands) fall into groups of given sizes, one after the other.

    Where rows are grouped, `"m k, g k n, g -> m n"`: the groups stay whole, and a shard of rows counts how many of its
    own rows fall into each group. The same holds for a shard of grouped summands, `"m k, k n, g -> g m n"`.
    """
    numbers = ragged_dot_dimension_numbers
    (contracted, _), (batch, _) = numbers.dot_dimension_numbers
    (ragged,) = numbers.lhs_ragged_dimensions
    left, right, result = _product(operands, numbers.dot_dimension_numbers, skip_right=numbers.rhs_group_dimensions)
    for d in numbers.rhs_group_dimensions:
        right[d] = "group"
    if ragged in contracted:
        result = ["group", *result]
    sizes = [*(f"s{i}" for i in range(len(operands[2].shape) - 1)), "group"]

    whole = {"group", *sizes}
    if len(sizes) > 1:  # each batch entry, or each slice in front of the rows, has groups of its own
        whole |= {left[d] for d in range(len(left)) if d == ragged or d not in contracted}
    if ragged in batch:
        whole.add(left[ragged])
    return build(
        text([left, right, sizes], [result]),
        operands,
        results,
        whole=whole,
        passes=IN_EACH,
        flops=_flops(operands, numbers.dot_dimension_numbers, skip_right=numbers.rhs_group_dimensions),
        local=_local_ragged_dot,
    )


def _local_ragged_dot(shard: Shard, left: Any, right: Any, group_sizes: Any) -> Any:
    (ragged,) = shard.params["ragged_dot_dimension_numbers"].lhs_ragged_dimensions
    if shard.operands[0].dims[ragged]:
        first = jnp.asarray(shard.operand_offset(0, ragged), group_sizes.dtype)
        ends = jnp.cumsum(group_sizes, dtype=group_sizes.dtype)
        inside = [jnp.clip(at - first, 0, left.shape[ragged]) for at in (ends - group_sizes, ends)]
        group_sizes = inside[1] - inside[0]
    return shard.bind(left, right, group_sizes)


def _product(
    operands: Sequence[Any], dimension_numbers: Any, skip_right: Sequence[int] = ()
) -> tuple[list[str], list[str], list[str]]:
    """The factors of both operands and of their product; `skip_right` dimensions of the right one are no part of it."""
    (contract_left, contract_right), (batch_left, batch_right) = dimension_numbers
    left, right = names(len(operands[0].shape), "i"), names(len(operands[1].shape), "j")
    for prefix, pairs in (
        ("k", zip(contract_left, contract_right, strict=True)),
        ("b", zip(batch_left, batch_right, strict=True)),
    ):
        for n, (p, q) in enumerate(pairs):
            left[p] = right[q] = f"{prefix}{n}"
    result = [left[p] for p in batch_left]
    result += [left[p] for p in range(len(left)) if p not in (*contract_left, *batch_left)]
    result += [right[q] for q in range(len(right)) if q not in (*contract_right, *batch_right, *skip_right)]
    return left, right, result


def _flops(operands: Sequence[Any], dimension_numbers: Any, skip_right: Sequence[int] = ()) -> float:
    """A multiplication and an addition for each pair of elements that meet."""
    (_, contract_right), (_, batch_right) = dimension_numbers
    shared = (*contract_right, *batch_right, *skip_right)
    free_right = prod(size for q, size in enumerate(operands[1].shape) if q not in shared)
    return 2.0 * prod(operands[0].shape) * free_right
