"""Carrying out a layout: the one walk over a graph that all emitters share.

Ops run in the graph's order; a version of a tensor is boxed when it is first read. What boxing a value or running an op
means is the emitter's (`Backend`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from sbpjax.layout import BodyLayout, scope_name
from sbpjax.program.graph import Constant, Graph, Op, Operand, Source, Tensor
from sbpjax.rules.rule import Signature
from sbpjax.sbp import Placement


class Backend(Protocol):
    """What an emitter does with one boxing and with one op."""

    def inside(self) -> Backend:
        """The backend for the body of a loop."""
        ...

    def box(self, x: Any, tensor: Tensor, source: Placement, target: Placement) -> Any:
        """The tensor in another placement."""
        ...

    def barrier(self, values: Sequence[Any], shared: Sequence[bool]) -> Sequence[Any]:
        """The same values, none of which is there before all are, and none of which may be taken for what it was.

        `shared` are those that others read too, without the barrier.
        """
        ...

    def run(self, op: Op, signature: Signature, operands: Sequence[Any], operand_avals: Any, result_avals: Any) -> Any:
        """The results of one op, as a sequence."""
        ...


def walk(graph: Graph, layout: BodyLayout, inputs: Sequence[Any], backend: Backend, path: tuple[int, ...] = ()) -> list:
    """The graph's outputs, in the placements that the layout returns them in.

    Args:
        graph: what to run.
        layout: how.
        inputs: the graph's inputs as version 0 has them.
        backend: the emitter.
        path: the indices of the scans around this graph, for the names of scopes.
    """
    values = _Values(graph, layout, backend, path)
    for tensor, x in zip(graph.inputs, inputs, strict=True):
        values.put(tensor, x)
    for barrier, numbered in groupby(enumerate(graph.ops), key=lambda item: item[1].group):
        if barrier is None:
            for i, op in numbered:
                _run(i, op, values)
        else:
            _barrier(list(numbered), values)
    return [
        values.read(operand, version, placement)
        for operand, version, placement in zip(graph.outputs, layout.results, layout.result_placements, strict=True)
    ]


class _Values:
    """The values of a graph's tensors, version by version, each boxed when it is first read."""

    def __init__(self, graph: Graph, layout: BodyLayout, backend: Backend, path: tuple[int, ...]) -> None:
        self.graph = graph
        self.layout = layout
        self.backend = backend
        self.path = path
        self._known: dict[tuple[int, int], Any] = {}

    def put(self, tensor: int, x: Any) -> None:
        """A tensor as its op or the caller makes it."""
        self._known[tensor, 0] = x

    def read(self, operand: Operand, version: int, placement: Placement) -> Any:
        """An operand in one of its versions; a constant goes straight to the placement."""
        if not isinstance(operand, Constant):
            return self._version(operand, version)
        whole = Placement.broadcast(len(operand.aval.shape))
        value = _literal(operand)
        return value if placement == whole else self.backend.box(value, Tensor(operand.aval, ""), whole, placement)

    def operands(self, i: int) -> list[Any]:
        """What op `i` reads."""
        op, layout = self.graph.ops[i], self.layout
        return [
            self.read(operand, version, placement)
            for operand, version, placement in zip(
                op.inputs, layout.uses[i], layout.signatures[i].operands, strict=True
            )
        ]

    def shared(self, operand: Operand) -> bool:
        """Whether several ops read it."""
        return not isinstance(operand, Constant) and len(self.graph.readers()[operand]) > 1

    def _version(self, tensor: int, version: int) -> Any:
        if (tensor, version) in self._known:
            return self._known[tensor, version]
        versions = self.layout.versions[tensor]
        made = versions[version]
        assert made.parent is not None
        parent = self._version(tensor, made.parent)
        # Two versions that are boxed alike are meant to be boxed twice (gathered for the forward pass, and again for
        # the backward pass): a barrier for each earlier one keeps the compiler from taking them for one.
        for earlier in versions[:version]:
            if earlier == made:
                (parent,) = self.backend.barrier([parent], [True])
        with jax.named_scope(scope_name(self.path, tensor, version)):
            source = versions[made.parent].placement
            x = self.backend.box(parent, self.graph.tensors[tensor], source, made.placement)
        self._known[tensor, version] = x
        return x


def _run(i: int, op: Op, values: _Values) -> None:
    operands = values.operands(i)
    with jax.named_scope(_scope(op.source)):
        if op.body is not None:
            results = _scan(i, op, op.body, operands, values)
        else:
            avals = values.graph.aval
            results = values.backend.run(
                op,
                values.layout.signatures[i],
                operands,
                [avals(operand) for operand in op.inputs],
                [avals(tensor) for tensor in op.outputs],
            )
    for tensor, x in zip(op.outputs, results, strict=True):
        values.put(tensor, x)


def _barrier(numbered: Sequence[tuple[int, Op]], values: _Values) -> None:
    """One barrier over the operands of all its ops: none of the results is there before all operands are."""
    operands = [x for i, _ in numbered for x in values.operands(i)]
    shared = [values.shared(operand) for _, op in numbered for operand in op.inputs]
    outputs = [tensor for _, op in numbered for tensor in op.outputs]
    for tensor, x in zip(outputs, values.backend.barrier(operands, shared), strict=True):
        values.put(tensor, x)


def _scan(i: int, op: Op, body: Graph, operands: Sequence[Any], values: _Values) -> list[Any]:
    params = op.params
    carried = params["num_consts"] + params["num_carry"]
    consts, carry, scanned = (
        operands[: params["num_consts"]],
        operands[params["num_consts"] : carried],
        operands[carried:],
    )

    def step(carry: Sequence[Any], scanned: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        inputs = [*consts, *carry, *scanned]
        results = walk(body, values.layout.bodies[i], inputs, values.backend.inside(), (*values.path, i))
        return results[: len(carry)], results[len(carry) :]

    carry, stacked = lax.scan(
        step,
        list(carry),
        list(scanned),
        length=params["length"],
        reverse=params["reverse"],
        unroll=params["unroll"],
    )
    return [*carry, *stacked]


def _literal(constant: Constant) -> Any:
    """A value that binds with the dtype that it had while tracing, whatever JAX's default is now."""
    aval, value = constant.aval, constant.value
    if jnp.issubdtype(aval.dtype, jax.dtypes.extended):
        return value
    return np.asarray(value, dtype=aval.dtype)


def _scope(source: Source) -> str:
    phase = "" if source.phase == "forward" else source.phase
    return "/".join(filter(None, (phase, source.module))) or "forward"
