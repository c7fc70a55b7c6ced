"""The plainest evaluator of a graph: bind every op's primitive in order. What emission does, on one device."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from sbpjax.program.graph import Constant, Graph
from sbpjax.program.program import Program


def run_graph(graph: Graph, values: Sequence[Any]) -> list[Any]:
    env = dict(zip(graph.inputs, values, strict=True))

    def read(operand: Any) -> Any:
        return operand.value if isinstance(operand, Constant) else env[operand]

    for op in graph.ops:
        inputs = [read(operand) for operand in op.inputs]
        if op.body is None:
            outputs = op.primitive.bind(*inputs, **op.primitive.get_bind_params(op.params))
            outputs = outputs if op.primitive.multiple_results else [outputs]
        else:
            outputs = _run_scan(op, inputs)
        for tensor, value in zip(op.outputs, outputs, strict=True):
            aval = graph.tensors[tensor].aval
            assert (value.shape, value.dtype) == (aval.shape, aval.dtype), (op.name, value, aval)
            env[tensor] = value
    return [read(operand) for operand in graph.outputs]


def _run_scan(op: Any, inputs: list[Any]) -> list[Any]:
    fixed, carried = op.params["num_consts"], op.params["num_carry"]
    consts, carry, scanned = inputs[:fixed], inputs[fixed : fixed + carried], inputs[fixed + carried :]
    avals = [op.body.aval(x) for x in op.body.outputs[:carried]]

    def body(carry: Any, slices: Any) -> Any:
        results = run_graph(op.body, [*consts, *carry, *slices])
        return _strong(results[:carried], avals), results[carried:]

    params = {name: op.params[name] for name in ("length", "reverse", "unroll")}
    carry, stacked = lax.scan(body, _strong(carry, avals), scanned, **params)
    return [*carry, *stacked]


def _strong(values: Sequence[Any], avals: Sequence[Any]) -> list[Any]:
    return [lax.convert_element_type(x, a.dtype) if not _is_key(a) else x for x, a in zip(values, avals, strict=True)]


def _is_key(aval: Any) -> bool:
    return jax.numpy.issubdtype(aval.dtype, jax.dtypes.extended)


QUICK = {"xla_backend_optimization_level": 0}
"""Compiler options of these tests: most of their time is compilation."""


@functools.lru_cache(maxsize=4)
def compiled(program: Program) -> Any:
    return jax.jit(lambda values: run_graph(program.graph, values), compiler_options=QUICK)


def call_program(program: Program, args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> Any:
    """Call the traced function by way of its graph."""
    leaves = program.flatten_call(args, kwargs or {})
    results = compiled(program)([*program.closure, *leaves])
    return program.finish(results, args, kwargs or {})


def assert_same(actual: Any, expected: Any, *, rtol: float = 0.0) -> None:
    """Equal trees with equal values: bitwise, or within `rtol` of each array's largest entry."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        if hasattr(a, "dtype") and jax.numpy.issubdtype(a.dtype, jax.dtypes.extended):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if rtol and np.issubdtype(a.dtype, np.inexact):
            scale = np.max(np.abs(b), initial=0.0)
            np.testing.assert_allclose(a, b, rtol=0, atol=rtol * max(scale, 1e-30))
        else:
            np.testing.assert_array_equal(a, b)
