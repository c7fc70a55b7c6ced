"""Ops while a graph is being made: flat and mutable, not yet freed of dead code, phases not yet known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sbpjax.program.graph import Constant, Graph, Op, Operand, Phase, Source, Tensor
from sbpjax.program.scopes import Origin


@dataclass(slots=True, eq=False)
class DraftOp:
    """An op to be."""

    primitive: Any
    params: dict[str, Any]
    inputs: list[Operand]
    outputs: list[int]
    origin: Origin
    location: str
    effects: bool = False
    body: Draft | None = None
    repeats: int = 1
    group: int | None = None
    phase: Phase = "forward"


@dataclass(slots=True, eq=False)
class Draft:
    """A graph to be: `avals` of all tensors, the input tensors, and what is returned."""

    avals: list[Any] = field(default_factory=list)
    ops: list[DraftOp] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[Operand] = field(default_factory=list)

    def tensor(self, aval: Any) -> int:
        """Add a tensor."""
        self.avals.append(aval)
        return len(self.avals) - 1

    def drop_dead_ops(self) -> None:
        """Drop ops that nobody reads. Input tensors stay."""
        alive = {operand for operand in self.outputs if not isinstance(operand, Constant)}
        kept = []
        for op in reversed(self.ops):
            if op.effects or not alive.isdisjoint(op.outputs):
                alive.update(operand for operand in op.inputs if not isinstance(operand, Constant))
                kept.append(op)
            if op.body is not None:
                op.body.drop_dead_ops()
        self.ops = kept[::-1]

    def finish(self, input_names: list[str]) -> Graph:
        """The frozen graph, tensors numbered in the order in which they come into being."""
        number: dict[int, int] = {}
        tensors: list[Tensor] = []

        def define(old: int, name: str) -> int:
            number[old] = len(tensors)
            tensors.append(Tensor(self.avals[old], name))
            return number[old]

        def renumbered(operands: list[Operand]) -> tuple[Operand, ...]:
            return tuple(operand if isinstance(operand, Constant) else number[operand] for operand in operands)

        inputs = tuple(define(old, name) for old, name in zip(self.inputs, input_names, strict=True))
        ops = []
        for op in self.ops:
            read = renumbered(op.inputs)
            module = op.origin.module
            name = f"{module}/{op.primitive.name}" if module else op.primitive.name
            written = tuple(define(old, name) for old in op.outputs)
            source = Source(module, op.phase, op.location)
            body = op.body and op.body.finish([self._name_in(op, k, tensors, read) for k in range(len(op.body.inputs))])
            ops.append(Op(op.primitive, op.params, read, written, source, body, op.repeats, op.group))
        return Graph(tuple(tensors), tuple(ops), inputs, renumbered(self.outputs))

    @staticmethod
    def _name_in(op: DraftOp, position: int, tensors: list[Tensor], operands: tuple[Operand, ...]) -> str:
        """A body's input bears the name of the operand that it is, or is a slice of."""
        operand = operands[position]
        return "constant" if isinstance(operand, Constant) else tensors[operand].name
