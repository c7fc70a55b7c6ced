"""Layouts that no search would choose: random legal ones (what rules allow and boxing can reach), and the trivial."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from sbpjax.boxing import route
from sbpjax.cluster import Links
from sbpjax.layout import BodyLayout, Layout, Version
from sbpjax.program.graph import Constant, Graph, Op, Operand, Tensor
from sbpjax.program.program import Program
from sbpjax.rules.registry import rule_of
from sbpjax.rules.rule import Signature
from sbpjax.rules.signatures import replicated, signatures
from sbpjax.sbp import MeshShape, P, Placement, S


def random_layout(program: Program, links: Links, seed: int, compiler_options: Mapping = {}) -> Layout:
    """A layout of the program on the links' mesh; equal seeds give equal layouts."""
    rng = random.Random(seed)
    mesh = links.mesh
    graph = program.graph
    inputs = [random_at_rest(graph.tensors[t].shape, mesh, rng) for t in graph.inputs]
    outputs: list[Placement | None] = [None] * len(graph.outputs)
    for leaf, placement in zip(program.leaves, inputs, strict=True):
        if leaf.carried_to is not None:
            outputs[leaf.carried_to] = placement
    results = [
        random_at_rest(tuple(graph.aval(operand).shape), mesh, rng) if placement is None else placement
        for operand, placement in zip(graph.outputs, outputs, strict=True)
    ]
    body = _RandomBody(graph, links, rng).build(inputs, results)
    return Layout(mesh, tuple(inputs), tuple(results), body, compiler_options)


def whole_layout(program: Program, mesh: MeshShape) -> Layout:
    """The layout in which every device computes everything."""
    body = _whole_body(program.graph)
    inputs = tuple(Placement.broadcast(len(program.graph.tensors[t].shape)) for t in program.graph.inputs)
    return Layout(mesh, inputs, body.result_placements, body)


def _whole_body(graph: Graph) -> BodyLayout:
    def whole(operand: Operand) -> Placement:
        return Placement.broadcast(len(graph.aval(operand).shape))

    return BodyLayout(
        versions=tuple((Version(whole(t)),) for t in range(len(graph.tensors))),
        signatures=tuple(Signature(tuple(map(whole, op.inputs)), tuple(map(whole, op.outputs))) for op in graph.ops),
        uses=tuple((0,) * len(op.inputs) for op in graph.ops),
        results=(0,) * len(graph.outputs),
        result_placements=tuple(map(whole, graph.outputs)),
        bodies={i: _whole_body(op.body) for i, op in enumerate(graph.ops) if op.body is not None},
    )


def random_at_rest(shape: Sequence[int], mesh: MeshShape, rng: random.Random) -> Placement:
    """A placement that is nowhere partial and divides the shape."""
    placement = Placement.broadcast(len(shape))
    for axis in mesh:
        if not shape or rng.random() < 0.25:
            continue
        tried = Placement.of(len(shape), {**_sbp(placement, mesh), axis: S(rng.randrange(len(shape)))}, order=mesh)
        if tried.divides(shape, mesh):
            placement = tried
    return placement


class _Unreachable(Exception):
    pass


class _RandomBody:
    def __init__(self, graph: Graph, links: Links, rng: random.Random) -> None:
        self.graph = graph
        self.links = links
        self.rng = rng
        self.versions: list[list[Version]] = [[] for _ in graph.tensors]

    def build(self, inputs: Sequence[Placement], results: Sequence[Placement]) -> BodyLayout:
        for tensor, placement in zip(self.graph.inputs, inputs, strict=True):
            self.versions[tensor] = [Version(placement)]
        chosen, uses, bodies = [], [], {}
        for i, op in enumerate(self.graph.ops):
            if op.body is not None:
                signature, used, bodies[i] = self._scan(op)
            else:
                signature, used = self._op(op)
            chosen.append(signature)
            uses.append(used)
            for tensor, placement in zip(op.outputs, signature.results, strict=True):
                self.versions[tensor] = [Version(placement)]
        returned = tuple(self._read(operand, p) for operand, p in zip(self.graph.outputs, results, strict=True))
        return BodyLayout(
            tuple(map(tuple, self.versions)), tuple(chosen), tuple(uses), returned, tuple(results), bodies
        )

    def _op(self, op: Op) -> tuple[Signature, tuple[int, ...]]:
        operands = [self.graph.aval(x) for x in op.inputs]
        results = [self.graph.aval(x) for x in op.outputs]
        rule = rule_of(op, operands, results)
        options = [replicated(operands, results)]
        if rule is not None:
            shapes = [a.shape for a in operands], [a.shape for a in results]
            options = self.rng.sample(found := list(signatures(rule, self.links.mesh, *shapes)), min(len(found), 8))
            options.append(found[0])
        if self.rng.random() < 0.8:  # as a rule, programs move less than they could
            options.sort(key=lambda signature: self._moves(op, signature))
        for signature in options:
            if all(map(self._reachable, op.inputs, signature.operands)):
                return signature, tuple(map(self._read, op.inputs, signature.operands))
        raise AssertionError(f"no signature of {op.name} can be reached")

    def _moves(self, op: Op, signature: Signature) -> int:
        """How many operands would have to be boxed, 1,000 for each where nothing is split."""
        moved = 1000 * all(p.is_broadcast for p in signature.results)
        for operand, placement in zip(op.inputs, signature.operands, strict=True):
            if not isinstance(operand, Constant):
                moved += placement not in [version.placement for version in self.versions[operand]]
        return moved

    def _scan(self, op: Op) -> tuple[Signature, tuple[int, ...], BodyLayout]:
        for partial in (0.15, 0.0, 0.0):
            before = [list(v) for v in self.versions]
            try:
                return self._try_scan(op, partial)
            except _Unreachable:
                self.versions = before
        raise AssertionError("a loop with whole operands can be reached")

    def _try_scan(self, op: Op, partial: float) -> tuple[Signature, tuple[int, ...], BodyLayout]:
        body, carried = op.body, op.params["num_consts"] + op.params["num_carry"]
        assert body is not None
        inputs = [self._inside(body.tensors[t], partial) for t in body.inputs]
        carry = inputs[op.params["num_consts"] : carried]
        stacked = [self._inside(Tensor(body.aval(x), ""), partial) for x in body.outputs[len(carry) :]]
        operands = [p.lifted() if k >= carried else p for k, p in enumerate(inputs)]
        used = tuple(map(self._read, op.inputs, operands))
        layout = _RandomBody(body, self.links, self.rng).build(inputs, [*carry, *stacked])
        return Signature(tuple(operands), (*carry, *(p.lifted() for p in stacked))), used, layout

    def _inside(self, tensor: Tensor, partial: float) -> Placement:
        """A placement of a value that enters or leaves a loop's body: it may be partial there."""
        placement = random_at_rest(tensor.shape, self.links.mesh, self.rng)
        free = [axis for axis in self.links.mesh if axis not in placement.split_axes]
        if free and self.rng.random() < partial and jax.dtypes.issubdtype(tensor.aval.dtype, np.floating):
            sbp = {**_sbp(placement, self.links.mesh), self.rng.choice(free): P("sum")}
            placement = Placement.of(placement.rank, sbp, order=self.links.mesh)
        return placement

    def _read(self, operand: Operand, placement: Placement) -> int:
        """A version of the operand in this placement: an old one, or a new one from any of the old."""
        if not self._reachable(operand, placement):
            raise _Unreachable
        if isinstance(operand, Constant):
            return 0
        versions = self.versions[operand]
        same = [v for v, version in enumerate(versions) if version.placement == placement]
        if same and (same[0] == 0 or self.rng.random() < 0.7):
            return self.rng.choice(same)
        if self.rng.random() < 0.15:  # by way of somewhere else
            between = random_at_rest(self.graph.tensors[operand].shape, self.links.mesh, self.rng)
            if self._new(operand, between) and self._finite(operand, between, placement):
                versions.append(Version(placement, len(versions) - 1))
                return len(versions) - 1
        made = self._new(operand, placement)
        assert made
        return made

    def _new(self, tensor: int, placement: Placement) -> int | None:
        versions = self.versions[tensor]
        parents = [
            v
            for v, version in enumerate(versions)
            if version.placement != placement and self._finite(tensor, version.placement, placement)
        ]
        if not parents:
            return None
        versions.append(Version(placement, self.rng.choice([parents[0], *parents])))
        return len(versions) - 1

    def _reachable(self, operand: Operand, placement: Placement) -> bool:
        if isinstance(operand, Constant):
            return self._finite(operand, Placement.broadcast(placement.rank), placement)
        return self._finite(operand, self.versions[operand][0].placement, placement)

    def _finite(self, operand: Operand, source: Placement, target: Placement) -> bool:
        tensor = Tensor(operand.aval, "") if isinstance(operand, Constant) else self.graph.tensors[operand]
        return math.isfinite(route(source, target, tensor.shape, tensor.itemsize, self.links).seconds)


def _sbp(placement: Placement, mesh: MeshShape) -> dict:
    return {axis: placement.on(axis) for axis in mesh}
