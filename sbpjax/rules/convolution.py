"""Convolution, forward and both gradients, by its dimension numbers.

The batch and the output features are parallel; the input features are contracted, so that splitting them leaves a
partial result. Groups go, whole, to devices. Space is split only where that needs no neighbour's border: where windows
lie side by side (1x1 kernels, the patches of a vision transformer) and in the two gradients of such a convolution.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sbpjax.rules.notation import build, text
from sbpjax.rules.registry import rule
from sbpjax.rules.rule import Passes, Rule, Shard
from sbpjax.rules.window import side_by_side


@rule("conv_general_dilated")
def conv(
    operands: Any,
    results: Any,
    *,
    window_strides: Any,
    padding: Any,
    lhs_dilation: Any,
    rhs_dilation: Any,
    dimension_numbers: Any,
    feature_group_count: int,
    batch_group_count: int,
    **_: Any,
) -> Rule:
    """`lhs` is `b i space`, `rhs` is `o i space`, the result `b o space`.

    With feature groups `g`, group by group of `lhs` features; with batch groups `h`, group by group of the `lhs` batch:
    either makes its own block of output features.
    """
    (lhs, rhs), (out,), numbers = operands, results, dimension_numbers
    left, right, made, whole = ["(h b)", "(g i)"], ["(g h o)", "i"], ["b", "(g h o)"], []
    for k, (stride, pad, left_dilation, right_dilation) in enumerate(
        zip(window_strides, padding, lhs_dilation, rhs_dilation, strict=True)
    ):
        n, m = lhs.shape[numbers.lhs_spec[2 + k]], out.shape[numbers.out_spec[2 + k]]
        space = _space(n, rhs.shape[numbers.rhs_spec[2 + k]], m, stride, pad, left_dilation, right_dilation)
        for dims, word in zip((left, right, made), space, strict=True):
            dims.append(word.replace("t", f"t{k}").replace("w", f"w{k}"))
        if "w" in "".join(space):
            whole.append(f"w{k}")
    kernel = [rhs.shape[d] for d in numbers.rhs_spec[1:]]
    # A dilated operand is mostly zeros, over which no compiler multiplies.
    flops = 2.0 * float(np.prod(out.shape)) * float(np.prod(kernel)) / float(np.prod(lhs_dilation))
    return build(
        text(
            [_laid_out(left, numbers.lhs_spec), _laid_out(right, numbers.rhs_spec)], [_laid_out(made, numbers.out_spec)]
        ),
        operands,
        results,
        sizes={"g": feature_group_count, "h": batch_group_count},
        whole=whole,
        passes=[Passes((0,)), Passes((1,))],
        flops=flops,
        local=_local_conv if max(feature_group_count, batch_group_count) > 1 else None,
    )


def _laid_out(dims: list[str], spec: Any) -> list[str]:
    """Dimensions given as batch (or output features), features, space, in the order in which the tensor has them."""
    placed = [""] * len(dims)
    for word, d in zip(dims, spec, strict=True):
        placed[d] = word
    return placed


def _space(
    n: int, k: int, m: int, stride: int, pad: tuple[int, int], left_dilation: int, right_dilation: int
) -> tuple[str, str, str]:
    """How one spatial dimension of `lhs` (size n), `rhs` (k) and the result (m) may be split.

    `t` runs over blocks, which may go to devices; `w` over positions within one.
    """
    low = pad[0]
    if side_by_side(n, m, (k - 1) * right_dilation + 1, stride, low, left_dilation):
        return "(t w)", "_", "t"
    if stride == 1 and low == 0 and left_dilation == 1 and n == k * right_dilation and m <= right_dilation:
        # The gradient of such a kernel: a sum over blocks.
        return "(t w)", "t", "_"
    if stride == right_dilation == 1 and k <= left_dilation and tuple(pad) == (k - 1, left_dilation - 1):
        # The gradient of its input: each block from the one gradient of its window.
        return "t", "_", "(t w)"
    return "_", "_", "_"


def _local_conv(shard: Shard, lhs: Any, rhs: Any) -> Any:
    """As many groups as this device's part of the grouped dimension holds: groups are split whole before all else."""
    numbers, counts = shard.params["dimension_numbers"], {}
    for name, d in (("feature_group_count", numbers.lhs_spec[1]), ("batch_group_count", numbers.lhs_spec[0])):
        groups = shard.params[name]
        counts[name] = max(groups // shard.operands[0].shards(shard.mesh)[d], 1)
    return shard.bind(lhs, rhs, **counts)
