"""Sorting and the largest few: the dimension that is ordered stays whole, the others are parallel."""

from __future__ import annotations

from math import log2
from typing import Any

import numpy as np

from sbpjax.rules.notation import build, names, text
from sbpjax.rules.registry import rule
from sbpjax.rules.rule import Rule


@rule("sort")
def sort(operands: Any, results: Any, *, dimension: int, **_: Any) -> Rule:
    """Any number of operands, by the first few of them."""
    return _ordered(operands, results, dimension)


@rule("top_k")
def top_k(operands: Any, results: Any, *, axis: int, **_: Any) -> Rule:
    """The k largest and where they stand."""
    return _ordered(operands, results, axis)


@rule("approx_top_k")
def approx_top_k(operands: Any, results: Any, *, reduction_dimension: int, **_: Any) -> Rule:
    """About the k largest, or smallest."""
    return _ordered(operands, results, reduction_dimension % operands[0].ndim)


def _ordered(operands: Any, results: Any, dimension: int) -> Rule:
    dims = names(operands[0].ndim)
    dims[dimension] = "_"
    n = operands[0].shape[dimension]
    comparisons = float(np.prod(operands[0].shape)) * log2(max(n, 2))
    return build(
        text([dims] * len(operands), [dims] * len(results)), operands, results, flops=comparisons * len(operands)
    )
