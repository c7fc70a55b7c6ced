"""Running sums, products, maxima: the dimension that is run along stays whole, the others are parallel."""

from __future__ import annotations

from typing import Any

from sbpjax.rules.notation import build, names, text
from sbpjax.rules.registry import rule
from sbpjax.rules.rule import Passes, Rule
from sbpjax.sbp import CombineOp


def _running(primitive: str, *ops: CombineOp) -> None:
    """Register a running reduction through which partial values of `ops` pass."""

    @rule(primitive)
    def running(operands: Any, results: Any, *, axis: int, reverse: bool) -> Rule:
        dims = names(operands[0].ndim)
        return build(
            text([dims], [dims]),
            operands,
            results,
            whole=[dims[axis]],
            passes=[Passes((0,), ops)] if ops else [],
        )


_running("cumsum", "sum")
_running("cummax", "max")
_running("cummin", "min")
_running("cumprod")
_running("cumlogsumexp")
