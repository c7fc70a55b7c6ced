"""Decompositions, triangular solves and Fourier transforms: a batch of them is parallel, each one stays whole."""

from __future__ import annotations

from typing import Any

import numpy as np

from sbpjax.rules.notation import build, names, text
from sbpjax.rules.registry import rule
from sbpjax.rules.rule import Passes, Rule


def _batched(*primitives: str, rank: int = 2, flops_per_cube: float = 1.0) -> None:
    """Register ops on a batch of problems, each the last `rank` dimensions of the first operand.

    Args:
        primitives: their names.
        rank: 2 for matrices, 1 for vectors.
        flops_per_cube: floating-point operations of one problem, over (long side) x (short side) squared.
    """

    @rule(*primitives)
    def batched(operands: Any, results: Any, **_: Any) -> Rule:
        batch = names(operands[0].ndim - rank)

        def dims(aval: Any) -> list[str]:
            return [*batch, *["_"] * (aval.ndim - len(batch))]

        long, short = max(operands[0].shape[-rank:]), min(operands[0].shape[-rank:])
        problems = float(np.prod(operands[0].shape[: len(batch)]))
        cube = float(long * short * short) if rank == 2 else float(long)
        return build(
            text(map(dims, operands), map(dims, results)), operands, results, flops=problems * cube * flops_per_cube
        )


_batched("cholesky", flops_per_cube=1 / 3)
_batched("lu", flops_per_cube=2 / 3)
_batched("qr", "geqrf", "householder_product", flops_per_cube=2.0)
_batched("eigh", "tridiagonal", flops_per_cube=9.0)
_batched("svd", flops_per_cube=20.0)
_batched("eig", "schur", "hessenberg", flops_per_cube=25.0)
_batched("lu_pivots_to_permutation", rank=1)
_batched("tridiagonal_solve", rank=1, flops_per_cube=8.0)


@rule("triangular_solve")
def triangular_solve(operands: Any, results: Any, *, left_side: bool, **_: Any) -> Rule:
    """Each right-hand side by itself; linear in them."""
    size, others = operands[0].shape[-1], float(np.prod(operands[1].shape))
    solve = "... _ n" if left_side else "... n _"
    return build(f"... _ _, {solve} -> {solve}", operands, results, passes=[Passes((1,))], flops=others * size)


@rule("fft")
def fft(operands: Any, results: Any, *, fft_lengths: Any, **_: Any) -> Rule:
    """Along the last dimensions; linear."""
    batch, inner = names(operands[0].ndim - len(fft_lengths)), ["_"] * len(fft_lengths)
    points = float(np.prod(operands[0].shape))
    return build(
        text([[*batch, *inner]], [[*batch, *inner]]),
        operands,
        results,
        passes=[Passes((0,))],
        flops=5.0 * points * float(np.log2(max(np.prod(fft_lengths), 2))),
    )
