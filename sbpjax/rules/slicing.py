"""Cutting out and putting in by offsets: slice, dynamic_slice, dynamic_update_slice, pad.

A dimension that is taken in full is parallel. So is one that is cut, or padded, in the same way in each of its blocks
(every second element; zeros between elements). A dynamic slice of a single position is in the part of one device: the
others contribute zeros, and the result is partial. All other dimensions stay whole.
"""

from __future__ import annotations

from typing import Any

from jax import lax

from sbpjax.rules.notation import build, text
from sbpjax.rules.position import clamped, located
from sbpjax.rules.registry import rule
from sbpjax.rules.rule import ANY_OP, Passes, Rule, Shard


@rule("slice")
def slice_(operands: Any, results: Any, *, start_indices: Any, strides: Any, **_: Any) -> Rule:
    """`x[start:limit:stride]` in each dimension."""
    (x,), (y,) = operands, results
    before, after, whole = [], [], []
    for d, (n, m, start, stride) in enumerate(
        zip(x.shape, y.shape, start_indices, strides or (1,) * x.ndim, strict=True)
    ):
        if n == m:
            before.append(f"d{d}")
            after.append(f"d{d}")
        elif m * stride == n and start < stride:
            before.append(f"(d{d} skip{d})")
            after.append(f"d{d}")
            whole.append(f"skip{d}")
        else:
            before.append("_")
            after.append("_")
    return build(
        text([before], [after]),
        operands,
        results,
        whole=whole,
        passes=[Passes((0,), ANY_OP)],
        flops=0,
        local=_local_slice,
        fusible=True,
        fuses_operands=True,
    )


def _local_slice(shard: Shard, x: Any) -> Any:
    starts = shard.params["start_indices"]
    strides = shard.params["strides"] or (1,) * len(starts)
    limits = tuple(
        start + (m - 1) * stride + 1 if m else start
        for start, m, stride in zip(starts, shard.local_result(), strides, strict=True)
    )
    return shard.bind(x, limit_indices=limits)


@rule("dynamic_slice")
def dynamic_slice(operands: Any, results: Any, *, slice_sizes: Any, **_: Any) -> Rule:
    """A window of fixed size at an offset known when it runs."""
    x, *starts = operands
    before, after = [], []
    for d, (n, size) in enumerate(zip(x.shape, slice_sizes, strict=True)):
        before.append(f"d{d}" if size in (n, 1) else "_")
        after.append(f"d{d}" if size == n else "_")
    return build(
        text([before, *([] for _ in starts)], [after]),
        operands,
        results,
        passes=[Passes((0,), ANY_OP)],
        flops=0,
        local=_local_dynamic_slice,
        fusible=True,
        fuses_operands=True,
    )


def _local_dynamic_slice(shard: Shard, x: Any, *starts: Any) -> Any:
    starts, mine = _shifted(shard, shard.params["slice_sizes"], starts)
    sizes = tuple(
        length if size == n else size
        for length, size, n in zip(x.shape, shard.params["slice_sizes"], shard.operand_shapes[0], strict=True)
    )
    window = shard.bind(x, *starts, slice_sizes=sizes)
    return window if mine is None else lax.select(lax.broadcast(mine, sizes), window, lax.full_like(window, 0))


@rule("dynamic_update_slice")
def dynamic_update_slice(operands: Any, results: Any, **_: Any) -> Rule:
    """A window overwritten at an offset known when it runs; whoever holds a single updated position writes it."""
    x, update, *starts = operands
    before, window = [], []
    for d, (n, size) in enumerate(zip(x.shape, update.shape, strict=True)):
        before.append(f"d{d}" if size in (n, 1) else "_")
        window.append(f"d{d}" if size == n else "_")
    return build(
        text([before, window, *([] for _ in starts)], [before]),
        operands,
        results,
        passes=[Passes((0, 1), ANY_OP)],
        flops=0,
        local=_local_dynamic_update_slice,
    )


def _local_dynamic_update_slice(shard: Shard, x: Any, update: Any, *starts: Any) -> Any:
    starts, mine = _shifted(shard, shard.operand_shapes[1], starts)
    if mine is not None:
        # Writing back what stands there, instead of choosing between two whole tensors, keeps the update in place.
        present = lax.dynamic_slice(x, starts, update.shape)
        update = lax.select(lax.broadcast(mine, update.shape), update, present)
    return shard.bind(x, update, *starts)


def _shifted(shard: Shard, sizes: Any, starts: Any) -> tuple[tuple[Any, ...], Any]:
    """Offsets counted from this shard, and whether all windows along split dimensions are its own (None: no such)."""
    shape, part = shard.operand_shapes[0], shard.local_operand(0)
    split = [bool(axes) and size != n for axes, size, n in zip(shard.operands[0].dims, sizes, shape, strict=True)]
    if not any(split):
        return tuple(starts), None
    shifted = [clamped(start, n - size) for start, size, n in zip(starts, sizes, shape, strict=True)]
    mine = None
    for d, cut in enumerate(split):
        if cut:
            shifted[d], inside = located(shifted[d], shard.operand_offset(0, d), part[d])
            mine = inside if mine is None else lax.bitwise_and(mine, inside)
    return tuple(shifted), mine


@rule("pad")
def pad(operands: Any, results: Any, *, padding_config: Any) -> Rule:
    """A value around, and between, elements. The value takes part in sums: a partial operand needs a partial value."""
    (x, _), (y,) = operands, results
    before, after, whole = [], [], []
    for d, (n, (low, high, between)) in enumerate(zip(x.shape, padding_config, strict=True)):
        if low == high == between == 0:
            before.append(f"d{d}")
            after.append(f"d{d}")
        elif low >= 0 and high >= 0 and low + high == between and n * (between + 1) == y.shape[d]:
            before.append(f"d{d}")
            after.append(f"(d{d} gap{d})")
            whole.append(f"gap{d}")
        else:
            before.append("_")
            after.append("_")
    return build(
        text([before, []], [after]),
        operands,
        results,
        whole=whole,
        passes=[Passes((0, 1), ANY_OP)],
        flops=0,
        fusible=True,
        fuses_operands=True,
    )
