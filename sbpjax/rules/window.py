"""Windows that slide over a tensor: pooling and its gradients.

A dimension that the window does not extend over is parallel. So is one whose windows lie side by side: each window then
lies in one block, and blocks may go to different devices. Where windows overlap, the dimension stays whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sbpjax.rules.notation import build, text
from sbpjax.rules.registry import rule
from sbpjax.rules.rule import Passes, Rule
from sbpjax.sbp import CombineOp


def side_by_side(size: int, windows: int, extent: int, stride: int, low: int, dilation: int = 1) -> bool:
    """Whether `windows` windows of `extent` positions lie one in each of as many blocks of `stride` positions.

    Args:
        size: of the dimension that they slide over.
        windows: how many there are.
        extent: from a window's first position to its last.
        stride: from one window's first position to the next one's.
        low: padding in front.
        dilation: of the dimension itself.
    """
    return dilation == 1 and low == 0 and extent <= stride and size == windows * stride > 0


def _pooled(
    wide: Any,
    narrow: Any,
    *,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> tuple[list[str], list[str], list[str]]:
    """The dimensions of what windows slide over, those of one value a window, and the factors that stay whole."""
    ones = (1,) * wide.ndim
    over, values, whole = [], [], []
    for d, (size, windows, length, stride, (low, _), dilation, spread) in enumerate(
        zip(
            wide.shape,
            narrow.shape,
            window_dimensions,
            window_strides,
            padding,
            base_dilation or ones,
            window_dilation or ones,
            strict=True,
        )
    ):
        if side_by_side(size, windows, (length - 1) * spread + 1, stride, low, dilation):
            over.append(f"(d{d} w{d})")
            values.append(f"d{d}")
            whole.append(f"w{d}")
        else:
            over.append("_")
            values.append("_")
    return over, values, whole


def _reduce_window(operands: Any, results: Any, ops: tuple[CombineOp, ...], params: Any) -> Rule:
    # The variadic primitive has initial values after its operands, and they are scalars.
    over, values, whole = _pooled(operands[0], results[0], **params)
    wide = [over if aval.ndim else [] for aval in operands]
    return build(
        text(wide, [values] * len(results)),
        operands,
        results,
        whole=whole,
        passes=[Passes((0,), ops)] if ops else [],
        flops=float(np.prod(results[0].shape) * np.prod(params["window_dimensions"])) * len(results),
    )


@rule("reduce_window_sum")
def reduce_window_sum(operands: Any, results: Any, **params: Any) -> Rule:
    """Sums of windows: linear."""
    return _reduce_window(operands, results, ("sum",), params)


@rule("reduce_window_max")
def reduce_window_max(operands: Any, results: Any, **params: Any) -> Rule:
    """Largest values of windows."""
    return _reduce_window(operands, results, ("max",), params)


@rule("reduce_window_min")
def reduce_window_min(operands: Any, results: Any, **params: Any) -> Rule:
    """Smallest values of windows."""
    return _reduce_window(operands, results, ("min",), params)


@rule("reduce_window")
def reduce_window(operands: Any, results: Any, *, jaxpr: Any, consts: Any, **params: Any) -> Rule:
    """Any other monoid."""
    return _reduce_window(operands, results, (), params)


@rule("select_and_scatter_add")
def select_and_scatter_add(operands: Any, results: Any, *, select_prim: Any, **params: Any) -> Rule:
    """The gradient of max pooling: each window's goes where its largest value stands. Linear in the gradient."""
    source, operand = operands
    over, values, whole = _pooled(operand, source, **params)
    return build(
        text([values, over], [over]),
        operands,
        results,
        whole=whole,
        passes=[Passes((0,))],
        flops=float(np.prod(source.shape) * np.prod(params["window_dimensions"])),
    )


@rule("select_and_gather_add")
def select_and_gather_add(operands: Any, results: Any, *, select_prim: Any, **params: Any) -> Rule:
    """The tangent of max pooling: each window's tangent is that of its largest value. Linear in the tangent."""
    tangents, _ = operands
    over, values, whole = _pooled(tangents, results[0], **params)
    return build(
        text([over, over], [values]),
        operands,
        results,
        whole=whole,
        passes=[Passes((0,))],
        flops=float(np.prod(results[0].shape) * np.prod(params["window_dimensions"])),
    )
