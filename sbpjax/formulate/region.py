"""Which search node stands for what in one graph: its ops, its tensors, its loops."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from sbpjax.cost.exposure import Purpose
from sbpjax.formulate.nodes import Holder
from sbpjax.formulate.options import GraphOptions
from sbpjax.formulate.placements import scan_part
from sbpjax.formulate.purpose import Purposes
from sbpjax.program.graph import Phase


class Use(NamedTuple):
    """One reader of a tensor: operand `k` of op `i`, which runs in a phase, from a first to a last moment."""

    i: int
    k: int
    phase: Phase
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Scan:
    """The nodes of one scan: its body, what holds each body input, and what holds each result of the body."""

    body: Region
    inputs: tuple[Holder, ...]
    results: tuple[Holder, ...]


@dataclass(eq=False)
class Region:
    """The nodes of one graph.

    Attributes:
        options: what the ops may do.
        path: the scans around it (indices of ops).
        repeats: how often it runs in a step.
        moments: for each op, the first and last moment at which it runs.
        op_nodes: each op's node; -1 for a scan.
        holders: for each tensor, the node that makes it, with the placements it makes.
        homes: by tensor, where it is kept for several phases.
        copies: by tensor and phase, what that phase's readers share.
        scans: by op.
        results: for each graph output, the node that holds it in the end.
        purposes: what its tensors are.
    """

    options: GraphOptions
    path: tuple[int, ...]
    repeats: int
    purposes: Purposes
    moments: list[tuple[int, int]] = field(default_factory=list)
    op_nodes: list[int] = field(default_factory=list)
    holders: dict[int, Holder] = field(default_factory=dict)
    homes: dict[int, Holder] = field(default_factory=dict)
    copies: dict[tuple[int, Phase], Holder] = field(default_factory=dict)
    scans: dict[int, Scan] = field(default_factory=dict)
    results: list[Holder] = field(default_factory=list)

    @cached_property
    def made_at(self) -> dict[int, int]:
        """The moment at which each result of an op begins to exist (a scan's, when the scan begins)."""
        return {t: self.moments[i][0] for i, op in enumerate(self.options.graph.ops) for t in op.outputs}

    @cached_property
    def inputs(self) -> frozenset[int]:
        """The tensors that come from outside."""
        return frozenset(self.options.graph.inputs)

    def uses(self, t: int) -> list[Use]:
        """Who reads tensor `t`."""
        ops = self.options.graph.ops
        return [Use(i, k, ops[i].source.phase, *self.moments[i]) for i, k in self.options.graph.readers()[t]]

    def source(self, t: int, phase: Phase) -> Holder:
        """What the readers of one phase read: their copy, else the home, else the tensor as it was made."""
        return self.copies.get((t, phase)) or self.kept(t)

    def kept(self, t: int) -> Holder:
        """The home, else the tensor as it was made."""
        return self.homes.get(t) or self.holders[t]

    def kept_for(self, t: int) -> Purpose:
        """What boxing a tensor into its home is for."""
        return self.purposes.of(t, {u.phase for u in self.uses(t)})

    def returned_for(self, t: int) -> Purpose:
        """What boxing a tensor into a result is for."""
        if not self.path:
            return "result"
        return "gradient" if t in self.purposes.gradients else "activation"

    def asking(self, i: int, k: int) -> Holder:
        """The node behind operand `k` of op `i`, with the placements that it asks for."""
        if i in self.scans:
            held = self.scans[i].inputs[k]
            return held.lifted() if scan_part(self.options.graph.ops[i], k) == "scanned" else held
        return Holder(self.op_nodes[i], tuple(s.operands[k] for s in self.options.ops[i].signatures))
