"""scatter and its kin: rows written or combined by index, as in `x.at[ids].add(u)`, an embedding's gradient.

Dimensions that are written in full are parallel. A dimension of which single positions are written (a vocabulary) may
be split too: each device keeps the updates that fall into its part. The updates themselves may be split where they are
combined by sum, max or min: the result is then partial, and the operand enters a sum on one device only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax
from jax.lax import GatherScatterMode

from sbpjax.rules.gather import interleaved
from sbpjax.rules.notation import build, text
from sbpjax.rules.position import clamped, located, widened
from sbpjax.rules.registry import rule
from sbpjax.rules.rule import ANY_OP, Passes, Rule, Shard
from sbpjax.sbp import CombineOp


@rule("scatter-add", "scatter-sub")
def scatter_add(operands: Any, results: Any, **params: Any) -> Rule:
    """Linear in the operand and the updates together."""
    return _scatter(operands, results, "sum", [Passes((0, 2))], **params)


@rule("scatter-max")
def scatter_max(operands: Any, results: Any, **params: Any) -> Rule:
    """A maximum of maxima: it does not matter how often a value takes part."""
    return _scatter(operands, results, "max", [Passes(k, ("max",)) for k in ((0,), (2,), (0, 2))], **params)


@rule("scatter-min")
def scatter_min(operands: Any, results: Any, **params: Any) -> Rule:
    """A minimum of minima."""
    return _scatter(operands, results, "min", [Passes(k, ("min",)) for k in ((0,), (2,), (0, 2))], **params)


@rule("scatter-mul")
def scatter_mul(operands: Any, results: Any, **params: Any) -> Rule:
    """Linear in the operand; there is no partial product, so updates stay whole along what the indices run over."""
    return _scatter(operands, results, None, [Passes((0,))], **params)


@rule("scatter")
def scatter(operands: Any, results: Any, *, update_jaxpr: Any, unique_indices: bool, **params: Any) -> Rule:
    """Overwriting. Where two updates meet, one wins, and it need not be the same one on every device."""
    once = unique_indices or int(np.prod(operands[1].shape[:-1])) == 1
    passes = [Passes((0, 2), ANY_OP)] if once and update_jaxpr is None else []
    return _scatter(operands, results, None, passes, **params)


def _scatter(
    operands: Any, results: Any, combine: CombineOp | None, passes: list[Passes], *, dimension_numbers: Any, **_: Any
) -> Rule:
    x, indices, updates = operands
    numbers = dimension_numbers
    batch = [f"n{i}" for i in range(indices.ndim - 1)]
    together = dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
    sizes = _window_sizes(numbers, x.shape, updates.shape)
    written, window = [], []
    for d, (n, size) in enumerate(zip(x.shape, sizes, strict=True)):
        if d in together:
            written.append(batch[together[d]])
            continue
        in_full = size == n
        vocabulary = size == 1 and d in numbers.scatter_dims_to_operand_dims
        written.append(f"x{d}" if in_full or vocabulary else "_")
        if d not in numbers.inserted_window_dims:
            window.append(f"x{d}" if in_full else "_")
    met = [n for i, n in enumerate(batch) if i not in numbers.scatter_indices_batching_dims]
    update = interleaved(window, numbers.update_window_dims, batch)
    return build(
        text([written, [*batch, "_"], update], [written]),
        operands,
        results,
        reductions=dict.fromkeys(met, combine) if combine else {},
        whole=() if combine else met,
        passes=passes,
        flops=float(np.prod(updates.shape)),
        local=_local_scatter,
    )


def _window_sizes(numbers: Any, shape: Any, updates_shape: Any) -> list[int]:
    """How much of each operand dimension one update covers."""
    windows = iter(numbers.update_window_dims)
    single = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    return [1 if d in single else updates_shape[next(windows)] for d in range(len(shape))]


def _local_scatter(shard: Shard, x: Any, indices: Any, updates: Any) -> Any:
    combined = [axis for axis in shard.results[0].partial if axis not in shard.operands[0].partial]
    if combined and shard.results[0].op == "sum":
        first = lax.eq(shard.axis_index(combined), np.int32(0))
        x = lax.select(lax.broadcast(first, x.shape), x, lax.full_like(x, 0))

    numbers, shape = shard.params["dimension_numbers"], shard.operand_shapes[0]
    sizes = _window_sizes(numbers, shape, shard.operand_shapes[2])
    columns_of = numbers.scatter_dims_to_operand_dims
    split = {d for d in columns_of if shard.operands[0].dims[d] and sizes[d] != shape[d]}
    if not split:
        return shard.bind(x, indices, updates)

    columns = []
    for column, d in enumerate(columns_of):
        index = lax.index_in_dim(indices, column, indices.ndim - 1, keepdims=False)
        position = clamped(index, shape[d] - sizes[d])
        mine = None if shard.params["mode"] == GatherScatterMode.CLIP else lax.eq(position, widened(index))
        if d in split:
            position, inside = located(position, shard.operand_offset(0, d), x.shape[d])
            mine = inside if mine is None else lax.bitwise_and(mine, inside)
        # Out of every part's bounds: dropped here, written where it belongs, if anywhere.
        nowhere = lax.full_like(position, shape[d])
        columns.append(position if mine is None else lax.select(mine, position, nowhere))
    shifted = lax.concatenate([lax.expand_dims(c, (c.ndim,)) for c in columns], indices.ndim - 1)
    return shard.bind(
        x,
        shifted,
        updates,
        mode=GatherScatterMode.FILL_OR_DROP,
        indices_are_sorted=False,
        unique_indices=False,
    )
