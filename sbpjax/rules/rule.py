"""A rule: which dimensions of an op's operands and results belong together, and what splitting them means.

A rule is written in Shardy's notation, `"b i k, b k j -> b i j"`: each word is a dimension, each name a *factor*. A
mesh axis may split one factor: the dimensions that carry it are split, and a result that lacks it is partial. It may
also leave the op alone (all operands whole), or pass a partial operand through where the op is linear in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sbpjax.sbp import CombineOp, MeshShape, Placement

Dims: TypeAlias = tuple[tuple[str, ...], ...]
"""For each dimension its factors, major to minor; empty for a dimension that no axis may split."""

ANY_OP: tuple[CombineOp, ...] = ("sum", "max", "min")


@dataclass(frozen=True, slots=True)
class Passes:
    """Partial operands that come out as a partial result, on the same axis, with the same op.

    Attributes:
        operands: positions that are partial together; all other operands are whole on that axis.
        ops: the combining ops for which this holds.
    """

    operands: tuple[int, ...]
    ops: tuple[CombineOp, ...] = ("sum",)


@dataclass(frozen=True, slots=True)
class Shard:
    """What a local implementation knows about the device that it runs on.

    Attributes:
        bind: bind the op's own primitive with its own parameters, some replaced: `shard.bind(x, new_sizes=...)`.
        params: the op's parameters.
        operands, results: placements.
        operand_shapes, result_shapes: the *global* shapes.
        mesh: axis sizes.
        axis_index: the linear index of this device along the given axes, major to minor (a traced int32).
    """

    bind: Callable[..., Any]
    params: Mapping[str, Any]
    operands: tuple[Placement, ...]
    results: tuple[Placement, ...]
    operand_shapes: tuple[tuple[int, ...], ...]
    result_shapes: tuple[tuple[int, ...], ...]
    mesh: MeshShape
    axis_index: Callable[[Sequence[str]], Any]

    def local_operand(self, k: int) -> tuple[int, ...]:
        """The shape of this device's part of operand `k`."""
        return self.operands[k].local_shape(self.operand_shapes[k], self.mesh)

    def local_result(self, k: int = 0) -> tuple[int, ...]:
        """The shape of this device's part of result `k`."""
        return self.results[k].local_shape(self.result_shapes[k], self.mesh)

    def operand_offset(self, k: int, dim: int) -> Any:
        """The global index of the first element of this device's part of operand `k` along `dim`: 0 where whole."""
        axes = self.operands[k].dims[dim]
        return self.axis_index(axes) * self.local_operand(k)[dim] if axes else 0

    def result_offset(self, k: int, dim: int) -> Any:
        """The same for result `k`."""
        axes = self.results[k].dims[dim]
        return self.axis_index(axes) * self.local_result(k)[dim] if axes else 0


Local: TypeAlias = Callable[..., Any]
"""`local(shard, *operands) -> result or list of results`: the op on this device's parts. It never communicates."""


@dataclass(frozen=True, eq=False)
class Rule:
    """How one op, with its parameters and shapes, may be split. Compared by identity: equal ops share one rule.

    Attributes:
        operands: the factors of each operand's dimensions.
        results: the factors of each result's dimensions.
        sizes: each factor's size.
        reductions: how results combine over a factor that they lack (sum unless said otherwise).
        whole: factors that no axis may split (they are named so that errors and reports can name them).
        passes: the ways in which partial operands pass through.
        flops: floating-point operations of the whole op; None: one for each element of the results.
        local: the op on one device's parts; None: bind the primitive with its own parameters.
        fusible: whether a compiler fuses it with its neighbours, so that its results need not go through memory
            (elementwise ops, broadcasts, iota; reductions fuse with what they read, see `fuses_operands`).
        fuses_operands: whether it can read its operands from the op that makes them without a trip through memory.
    """

    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    sizes: Mapping[str, int]
    reductions: Mapping[str, CombineOp] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()
    passes: tuple[Passes, ...] = ()
    flops: float | None = None
    local: Local | None = None
    fusible: bool = False
    fuses_operands: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """Placements of an op's operands and results that make its local implementation right."""

    operands: tuple[Placement, ...]
    results: tuple[Placement, ...]

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.operands))} -> {', '.join(map(str, self.results))}"
