"""One device's share of an op: run it on the parts that a signature gives to that device, without communication."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sbpjax.rules.registry import Applied
from sbpjax.rules.rule import Rule, Shard, Signature
from sbpjax.sbp import MeshShape


def run_local(
    op: Applied,
    rule: Rule | None,
    signature: Signature,
    mesh: MeshShape,
    operands: Sequence[Any],
    operand_shapes: Sequence[Sequence[int]],
    result_shapes: Sequence[Sequence[int]],
    axis_index: Callable[[Sequence[str]], Any],
) -> list[Any]:
    """This device's parts of an op's results.

    Args:
        op: the primitive and its parameters.
        rule: its rule; None where it has none and runs whole.
        signature: the placements of operands and results.
        mesh: axis sizes.
        operands: this device's parts, placed as `signature.operands` says.
        operand_shapes, result_shapes: the global shapes.
        axis_index: the linear index of this device along some axes, major to minor.
    """

    def bind(*args: Any, **replaced: Any) -> Any:
        params = op.primitive.get_bind_params({**op.params, **replaced})
        return op.primitive.bind(*args, **params)

    if rule is None or rule.local is None:
        results = bind(*operands)
    else:
        shard = Shard(
            bind=bind,
            params=op.params,
            operands=signature.operands,
            results=signature.results,
            operand_shapes=tuple(map(tuple, operand_shapes)),
            result_shapes=tuple(map(tuple, result_shapes)),
            mesh=mesh,
            axis_index=axis_index,
        )
        results = rule.local(shard, *operands)
    return list(results) if isinstance(results, list | tuple) else [results]
