"""gather: rows picked by index, as in `x[ids]`, an embedding lookup, `take_along_axis`.

Dimensions of the indices are parallel; so are those of the operand that are taken in full. A dimension out of which
single positions are picked (a vocabulary) may be split too: each device picks what it holds and contributes zeros for
the rest, so that the result is partial.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax
from jax.lax import GatherScatterMode

from sbpjax.rules.notation import build, text
from sbpjax.rules.position import clamped, located, widened
from sbpjax.rules.registry import rule
from sbpjax.rules.rule import Passes, Rule, Shard


@rule("gather")
def gather(
    operands: Any, results: Any, *, dimension_numbers: Any, slice_sizes: Any, mode: Any, fill_value: Any, **_: Any
) -> Rule:
    """By dimension numbers, in every mode."""
    (x, indices), (y,), numbers = operands, results, dimension_numbers
    batch = [f"n{i}" for i in range(indices.ndim - 1)]
    together = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    picked, window = [], []
    for d, (n, size) in enumerate(zip(x.shape, slice_sizes, strict=True)):
        if d in together:
            picked.append(batch[together[d]])
            continue
        in_full = size == n
        vocabulary = size == 1 and d in numbers.start_index_map
        collapsed = d in numbers.collapsed_slice_dims
        picked.append(f"x{d}" if (in_full and not collapsed) or vocabulary else "_")
        if not collapsed:
            window.append(f"x{d}" if in_full else "_")
    ops = ("max", "min") if _fill_is_counted_twice(y, mode, fill_value) else ("sum", "max", "min")
    return build(
        text([picked, [*batch, "_"]], [interleaved(window, numbers.offset_dims, batch)]),
        operands,
        results,
        passes=[Passes((0,), ops)],
        flops=0,
        local=_local_gather,
    )


def interleaved(window: list[str], window_dims: Any, batch: list[str]) -> list[str]:
    """The dimensions of a gathered result, or of a scatter's updates: windows at `window_dims`, the batch elsewhere."""
    windows, others = iter(window), iter(batch)
    return [next(windows if d in window_dims else others) for d in range(len(window) + len(batch))]


def _fill_is_counted_twice(y: Any, mode: Any, fill_value: Any) -> bool:
    """Whether filling on several devices, and adding, would give another value than filling once."""
    if mode != GatherScatterMode.FILL_OR_DROP:
        return False
    fill = _fill(y.dtype, fill_value)
    return not (fill == 0 or fill != fill)


def _fill(dtype: Any, fill_value: Any) -> Any:
    """What stands where an index was out of bounds: by default NaN, or an integer that is as conspicuous."""
    if fill_value is not None:
        return fill_value
    if np.issubdtype(dtype, np.signedinteger):
        return np.iinfo(dtype).min
    if np.issubdtype(dtype, np.unsignedinteger):
        return np.iinfo(dtype).max
    return np.nan


def _local_gather(shard: Shard, x: Any, indices: Any) -> Any:
    numbers, sizes = shard.params["dimension_numbers"], shard.params["slice_sizes"]
    shape = shard.operand_shapes[0]
    here = tuple(part if size == n else size for part, size, n in zip(x.shape, sizes, shape, strict=True))
    split = [d for d in numbers.start_index_map if shard.operands[0].dims[d] and sizes[d] != shape[d]]
    if not split:
        return shard.bind(x, indices, slice_sizes=here)

    columns, mine, valid = [], [], []
    for column, d in enumerate(numbers.start_index_map):
        index = lax.index_in_dim(indices, column, indices.ndim - 1, keepdims=False)
        position = clamped(index, shape[d] - sizes[d])
        valid.append(lax.eq(position, widened(index)))
        if d in split:
            position, inside = located(position, shard.operand_offset(0, d), x.shape[d])
            mine.append(inside)
        columns.append(position)
    shifted = lax.concatenate([lax.expand_dims(c, (c.ndim,)) for c in columns], indices.ndim - 1)
    rows = shard.bind(
        x,
        shifted,
        slice_sizes=here,
        mode=GatherScatterMode.CLIP,
        indices_are_sorted=False,
        unique_indices=False,
        fill_value=None,
    )
    batch_dims = [d for d in range(rows.ndim) if d not in numbers.offset_dims]

    def choose(where: list[Any], chosen: Any, otherwise: Any) -> Any:
        mask = where[0]
        for other in where[1:]:
            mask = lax.bitwise_and(mask, other)
        return lax.select(lax.broadcast_in_dim(mask, rows.shape, batch_dims), chosen, otherwise)

    rows = choose(mine, rows, lax.full_like(rows, 0))
    if shard.params["mode"] == GatherScatterMode.FILL_OR_DROP:
        # Out of bounds on one device is out of bounds on all: one of them fills, or a sum would count the fill again.
        axes = [axis for d in split for axis in shard.operands[0].dims[d]]
        first = lax.eq(shard.axis_index(axes), np.int32(0))
        fill = lax.full_like(rows, _fill(rows.dtype, shard.params["fill_value"]))
        missing = lax.select(lax.broadcast(first, rows.shape), fill, lax.full_like(rows, 0))
        rows = choose(valid, rows, missing)
    return rows
