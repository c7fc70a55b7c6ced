"""Seconds that an op computes on one device: a roofline, with what a compiler fuses in mind.

An op takes as long as its arithmetic or its memory traffic, whichever is longer. Traffic counts only tensors that go
through memory: the results of elementwise chains stay in registers, as XLA fuses them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sbpjax.cluster import Device
from sbpjax.program.graph import Constant, Graph, Op
from sbpjax.rules.rule import Rule, Signature
from sbpjax.sbp import MeshShape, Placement

LAUNCH_SECONDS = {"cuda": 2e-6, "cpu": 2e-6}
"""The least time of a kernel of its own (launch and tail); fused ops have none."""

MATMUL_PEAK_SHARE = 0.79
"""What large bfloat16 matrix products reach of the device's peak (781 of 989 TFLOP/s on H100 from 4096)."""

MATMUL_HALF_SIZES = (90.0, 90.0, 150.0)
"""M, N, K at which a product reaches half of that (fit to XLA's for H100: N=512 662, K=512 552, K=128 399 TFLOP/s)."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Which operands and results of an op go through memory."""

    operands: tuple[bool, ...]
    results: tuple[bool, ...]

    @property
    def any(self) -> bool:
        """Whether the op touches memory at all."""
        return any(self.operands) or any(self.results)


def materialised(graph: Graph, rules: Sequence[Rule | None], kept: Sequence[bool]) -> list[bool]:
    """Which tensors of a graph go through memory.

    A tensor stays in registers when its op is fusible, every reader can fuse it, all in the phase of its op, and it is
    not returned. `kept` marks what must be in memory for other reasons (inputs, results).
    """
    readers = graph.readers()
    in_memory = [True] * len(graph.tensors)
    for i, op in enumerate(graph.ops):
        rule = rules[i]
        if rule is None or not rule.fusible or op.group is not None:
            continue
        for t in op.outputs:
            in_memory[t] = kept[t] or not all(
                _fuses_operand(graph.ops[j], rules[j]) and graph.ops[j].source.phase == op.source.phase
                for j, _ in readers[t]
            )
    return in_memory


def _fuses_operand(op: Op, rule: Rule | None) -> bool:
    return op.group is None and rule is not None and (rule.fusible or rule.fuses_operands)


RENAMING = frozenset(
    {"reshape", "squeeze", "expand_dims", "transpose", "optimization_barrier", "sbp_constrain", "stop_gradient"}
)
"""Primitives whose result is their operand's buffer under another name (of a transpose: in another layout)."""


PICKING = frozenset({"gather", "slice", "dynamic_slice"})
"""Primitives that read of their operand only what they return."""


def renames(op: Op, in_memory: Sequence[bool]) -> bool:
    """Whether the op's result is its operand's buffer."""
    operand = op.inputs[0] if op.inputs else None
    return op.name in RENAMING and isinstance(operand, int) and in_memory[operand]


def traffic(op: Op, in_memory: Sequence[bool]) -> Traffic:
    """The traffic of one op. One that only renames a buffer moves nothing."""
    if renames(op, in_memory):
        return Traffic((False,) * len(op.inputs), (False,) * len(op.outputs))
    return Traffic(
        tuple(not isinstance(x, Constant) and in_memory[x] for x in op.inputs),
        tuple(in_memory[t] for t in op.outputs),
    )


def op_flops(graph: Graph, op: Op, rule: Rule | None) -> float:
    """Operations of the whole op: its rule's count, and at least one for each element that it makes."""
    elements = 0.0 if op.name in RENAMING else float(sum(math.prod(graph.tensors[t].shape) for t in op.outputs))
    return elements if rule is None or rule.flops is None else max(elements, rule.flops)


def split_ways(signature: Signature, mesh: MeshShape) -> int:
    """Over how many devices the op's work is divided: those of every axis that splits some dimension."""
    axes = {a for p in (*signature.operands, *signature.results) for a in p.split_axes}
    return math.prod(mesh[a] for a in axes)


def op_seconds(
    graph: Graph,
    op: Op,
    rule: Rule | None,
    signatures: Sequence[Signature],
    moves: Traffic,
    mesh: MeshShape,
    device: Device,
) -> np.ndarray:
    """Seconds of one run of the op on one device, for each of its signatures."""
    flops = op_flops(graph, op, rule)
    shapes = [tuple(graph.aval(x).shape) for x in op.inputs]
    sizes_in = [0 if isinstance(x, Constant) else graph.tensors[x].bytes for x in op.inputs]
    sizes_out = [graph.tensors[t].bytes for t in op.outputs]
    if op.name in PICKING:
        sizes_in[0] = min(sizes_in[0], sum(sizes_out))
    is_dot = op.name == "dot_general"
    rate = flop_rate(device, _work_dtype(graph, op), op.name)
    launch = LAUNCH_SECONDS[device.platform] if moves.any and not (rule is not None and rule.fusible) else 0.0
    seconds = np.empty(len(signatures))
    for o, signature in enumerate(signatures):
        arithmetic = flops / split_ways(signature, mesh) / rate
        if is_dot and device.platform == "cuda":
            m, n, k = _matmul_sizes(op, shapes, signature, mesh)
            arithmetic /= matmul_share(m, n, k)
        moved = _moved(sizes_in, signature.operands, moves.operands, mesh)
        moved += _moved(sizes_out, signature.results, moves.results, mesh)
        seconds[o] = max(arithmetic, moved / device.memory_bytes_per_second) + launch
    return seconds


def _moved(sizes: Sequence[int], placements: Sequence[Placement], moves: Sequence[bool], mesh: MeshShape) -> float:
    return sum(
        size * fraction(p, tuple(mesh.items()))
        for size, p, moved in zip(sizes, placements, moves, strict=True)
        if moved
    )


@lru_cache(maxsize=1 << 16)
def fraction(placement: Placement, mesh: tuple[tuple[str, int], ...]) -> float:
    """`Placement.fraction`, remembered: few placements occur, and each of them very often."""
    return placement.fraction(dict(mesh))


def _work_dtype(graph: Graph, op: Op) -> str:
    """The dtype that decides the arithmetic rate: the first floating operand's, else the first result's."""
    for x in (*op.inputs, *op.outputs):
        name = str(graph.aval(x).dtype)
        if name.startswith(("float", "bfloat")):
            return name
    return str(graph.aval(op.outputs[0]).dtype) if op.outputs else "float32"


def flop_rate(device: Device, dtype: str, primitive: str) -> float:
    """FLOP/s of the device for a primitive on a dtype: tensor cores only serve products and convolutions."""
    rates = device.flops_per_second
    if primitive not in ("dot_general", "conv_general_dilated", "ragged_dot_general"):
        return rates["float32"]
    if dtype in rates:
        return rates[dtype]
    return rates["float32"]


def matmul_share(m: float, n: float, k: float) -> float:
    """The share of the peak rate that a product of these sizes reaches."""
    share = MATMUL_PEAK_SHARE
    for size, half in zip((m, n, k), MATMUL_HALF_SIZES, strict=True):
        share *= size / (size + half)
    return share


def _matmul_sizes(
    op: Op, shapes: Sequence[tuple[int, ...]], signature: Signature, mesh: MeshShape
) -> tuple[float, float, float]:
    """M, N and K of a dot_general on one device (its batch apart)."""
    (contract_l, contract_r), (batch_l, batch_r) = op.params["dimension_numbers"]
    cuts_l, cuts_r = (signature.operands[i].shards(mesh) for i in (0, 1))
    left = [size / n for size, n in zip(shapes[0], cuts_l, strict=True)]
    right = [size / n for size, n in zip(shapes[1], cuts_r, strict=True)]
    k = math.prod(left[d] for d in contract_l)
    m = math.prod(x for d, x in enumerate(left) if d not in contract_l and d not in batch_l)
    n = math.prod(x for d, x in enumerate(right) if d not in contract_r and d not in batch_r)
    return m, n, k
