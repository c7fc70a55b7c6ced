"""From the solver's choice of options to a layout: versions of tensors, and who reads which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sbpjax.cost.exposure import Purpose
from sbpjax.formulate.build import Formulation
from sbpjax.formulate.nodes import Holder
from sbpjax.formulate.region import Region
from sbpjax.layout import BodyLayout, Layout, Version
from sbpjax.program.graph import Constant, Graph, Op, Source
from sbpjax.rules.rule import Signature
from sbpjax.sbp import MeshShape, Placement

Choice = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Boxing:
    """One boxing of a layout, with what the cost model and the report want to know of it.

    Attributes:
        path, graph, tensor, version: which version of which tensor it makes.
        repeats: how often a step does so.
        purpose: what it is for.
        source: the op that asked for it first.
    """

    path: tuple[int, ...]
    graph: Graph
    tensor: int
    version: int
    repeats: int
    purpose: Purpose
    source: Source


@dataclass(frozen=True, eq=False)
class Decoded:
    """A layout and the list of its boxings."""

    layout: Layout
    boxings: tuple[Boxing, ...]


def decode(formulation: Formulation, choice: Choice, mesh: MeshShape) -> Decoded:
    """The layout that a choice of options means.

    Args:
        formulation: the problem that was solved.
        choice: an option for each node.
        mesh: the layout's mesh (axes of size 1 included).
    """
    boxings: list[Boxing] = []
    region = formulation.region
    body = _Decoder(region, choice, boxings).body()
    inputs = tuple(_chosen(held, choice) for held in formulation.inputs)
    return Decoded(Layout(mesh, inputs, body.result_placements, body), tuple(boxings))


class _Decoder:
    """Decodes one graph; loop bodies get decoders of their own."""

    def __init__(self, region: Region, choice: Choice, boxings: list[Boxing]) -> None:
        self.region = region
        self.graph = region.options.graph
        self.choice = choice
        self.boxings = boxings
        self.versions: list[list[Version]] = [
            [Version(_chosen(region.holders[t], choice))] for t in range(len(self.graph.tensors))
        ]
        self.known: dict[tuple, int] = {}

    def body(self) -> BodyLayout:
        region, graph = self.region, self.graph
        uses = tuple(
            tuple(0 if isinstance(x, Constant) else self._read(x, i, k) for k, x in enumerate(op.inputs))
            for i, op in enumerate(graph.ops)
        )
        results, placements = [], []
        for operand, target in zip(graph.outputs, region.results, strict=True):
            wanted = _chosen(target, self.choice)
            if isinstance(operand, Constant):
                results.append(0)
            else:
                kept = self._kept(operand)
                last = graph.ops[-1].source if graph.ops else Source()
                results.append(self._derive(operand, kept, wanted, "result", region.returned_for(operand), last))
            placements.append(wanted)
        signatures = tuple(self._signature(i, op) for i, op in enumerate(graph.ops))
        bodies = {i: _Decoder(s.body, self.choice, self.boxings).body() for i, s in region.scans.items()}
        return BodyLayout(
            tuple(tuple(v) for v in self.versions), signatures, uses, tuple(results), tuple(placements), bodies
        )

    def _signature(self, i: int, op: Op) -> Signature:
        region = self.region
        if i not in region.scans:
            return region.options.ops[i].signatures[self.choice[region.op_nodes[i]]]
        operands = (_chosen(region.asking(i, k), self.choice) for k in range(len(op.inputs)))
        results = (_chosen(region.holders[t], self.choice) for t in op.outputs)
        return Signature(tuple(operands), tuple(results))

    def _read(self, t: int, i: int, k: int) -> int:
        """The version of tensor `t` that op `i` reads as its operand `k`."""
        region, source = self.region, self.graph.ops[i].source
        purpose = region.purposes.of(t, {source.phase})
        version = self._kept(t)
        if copy := region.copies.get((t, source.phase)):
            version = self._derive(t, version, _chosen(copy, self.choice), source.phase, purpose, source)
        wanted = _chosen(region.asking(i, k), self.choice)
        return self._derive(t, version, wanted, source.phase, purpose, source)

    def _kept(self, t: int) -> int:
        """The version in which a tensor is kept for all its readers."""
        home = self.region.homes.get(t)
        if home is None:
            return 0
        first = min(self.region.uses(t), default=None)
        source = self.graph.ops[first.i].source if first else Source()
        return self._derive(t, 0, _chosen(home, self.choice), "home", self.region.kept_for(t), source)

    def _derive(self, t: int, parent: int, placement: Placement, share: str, purpose: Purpose, source: Source) -> int:
        """The version of `t` in a placement: its parent if nothing changes, one that is shared, or a new one."""
        versions = self.versions[t]
        if versions[parent].placement == placement:
            return parent
        key = (t, parent, placement, share)
        if key not in self.known:
            self.known[key] = len(versions)
            versions.append(Version(placement, parent))
            self.boxings.append(
                Boxing(self.region.path, self.graph, t, len(versions) - 1, self.region.repeats, purpose, source)
            )
        return self.known[key]


def _chosen(held: Holder, choice: Choice) -> Placement:
    return held.placements[choice[held.node]]
