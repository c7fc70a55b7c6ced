"""Reductions: a split of what is reduced leaves a partial result, where partial results can be combined at all."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from sbpjax.rules.notation import build, names, text
from sbpjax.rules.registry import Maker, rule
from sbpjax.rules.rule import Passes, Rule
from sbpjax.sbp import CombineOp


def reduced(operands: Sequence[Any], results: Sequence[Any], axes: Sequence[int], op: CombineOp | None) -> Rule:
    """The rule of a reduction of each operand over the same axes.

    Args:
        operands: what is reduced.
        results: one for each operand, without the axes.
        axes: the dimensions that are reduced.
        op: what combines partial results; None: nothing does, the axes stay whole.
    """
    dims = names(len(operands[0].shape))
    gone = [dims[d] for d in axes]
    return build(
        text([dims] * len(operands), [[d for d in dims if d not in gone]] * len(results)),
        operands,
        results,
        reductions={} if op is None else dict.fromkeys(gone, op),
        whole=gone if op is None else (),
        passes=[] if op is None else [Passes(tuple(range(len(operands))), (op,))],
        flops=float(sum(prod(aval.shape) for aval in operands)),
        fuses_operands=True,
    )


@rule("reduce_sum")
def reduce_sum(operands: Sequence[Any], results: Sequence[Any], *, axes: Sequence[int], **_: Any) -> Rule:
    """`"i k -> i"`, summed over k."""
    return reduced(operands, results, axes, "sum")


@rule("reduce_max")
def reduce_max(operands: Sequence[Any], results: Sequence[Any], *, axes: Sequence[int], **_: Any) -> Rule:
    """`"i k -> i"`, the maximum over k."""
    return reduced(operands, results, axes, "max")


@rule("reduce_min")
def reduce_min(operands: Sequence[Any], results: Sequence[Any], *, axes: Sequence[int], **_: Any) -> Rule:
    """`"i k -> i"`, the minimum over k."""
    return reduced(operands, results, axes, "min")


@rule("reduce_or")
def reduce_or(operands: Sequence[Any], results: Sequence[Any], *, axes: Sequence[int], **_: Any) -> Rule:
    """Of truth values, the maximum; of integers' bits, nothing that partial values could be combined by."""
    return reduced(operands, results, axes, "max" if results[0].dtype == np.bool_ else None)


@rule("reduce_and")
def reduce_and(operands: Sequence[Any], results: Sequence[Any], *, axes: Sequence[int], **_: Any) -> Rule:
    """Of truth values, the minimum."""
    return reduced(operands, results, axes, "min" if results[0].dtype == np.bool_ else None)


@rule("reduce_prod", "reduce_xor", "argmax", "argmin")
def reduce_whole(operands: Sequence[Any], results: Sequence[Any], *, axes: Sequence[int], **_: Any) -> Rule:
    """No collective combines products, parities or positions."""
    return reduced(operands, results, axes, None)


@rule("reduce")
def reduce(operands: Sequence[Any], results: Sequence[Any], *, dimensions: Sequence[int], **_: Any) -> Rule:
    """A reduction by the user's own function: operands, then their initial scalars."""
    dims = names(len(operands[0].shape))
    kept = [d for i, d in enumerate(dims) if i not in dimensions]
    n = len(results)
    return build(
        text([dims] * n + [[]] * n, [kept] * n),
        operands,
        results,
        whole=[d for d in dims if d not in kept],
        flops=float(sum(prod(aval.shape) for aval in operands[:n])),
        fuses_operands=True,
    )


_COMBINED: dict[str, CombineOp] = {"psum": "sum", "pmax": "max", "pmin": "min"}


def _batched_collective(op: CombineOp) -> Maker:
    """A collective that `vmap` has made a reduction over dimensions; one over named axes is not ours to split."""

    def batched(operands: Sequence[Any], results: Sequence[Any], *, axes: Sequence[Any], **_: Any) -> Rule | None:
        if any(isinstance(axis, str) for axis in axes):
            return None
        return reduced(operands, results, axes, op)

    return batched


for _name, _op in _COMBINED.items():
    rule(_name)(_batched_collective(_op))
