"""A hash that tells whether two traced functions are the same program, in whatever process they were traced.

It covers the ops with all their parameters, shapes and dtypes, the names of the leaves and their donation; not the
values of arrays, source lines, or module names.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sbpjax import compat
from sbpjax.program.graph import Constant, Graph, Operand
from sbpjax.program.program import Leaf


def fingerprint(graph: Graph, leaves: Sequence[Leaf], result_paths: Sequence[str]) -> str:
    """The hash, 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for leaf in leaves:
        digest.update(f"{leaf.path} {leaf.donated} {leaf.carried_to}\n".encode())
    digest.update(" ".join(result_paths).encode())
    for line in _lines(graph):
        digest.update(line.encode())
        digest.update(b"\n")
    return digest.hexdigest()


def _lines(graph: Graph) -> Iterator[str]:
    """The graph as text, an op a line, bodies indented."""
    yield f"inputs {' '.join(f'{i}:{_aval(graph.tensors[i].aval)}' for i in graph.inputs)}"
    for op in graph.ops:
        written = " ".join(f"{i}:{_aval(graph.tensors[i].aval)}" for i in op.outputs)
        read = " ".join(map(_operand, op.inputs))
        yield f"{written} = {op.name}[{_params(op.params)}] {read} group={op.group}"
        if op.body is not None:
            yield "{"
            yield from _lines(op.body)
            yield "}"
    yield f"outputs {' '.join(map(_operand, graph.outputs))}"


def _aval(aval: Any) -> str:
    if type(aval) is compat.ShapedArray:
        return f"{aval.dtype.name}{list(aval.shape)}{'~' if aval.weak_type else ''}"
    return _without_addresses(str(aval))


def _operand(operand: Operand) -> str:
    return f"({stable_text(operand.value)})" if isinstance(operand, Constant) else str(operand)


def _params(params: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={stable_text(params[name])}" for name in sorted(params))


def stable_text(value: Any) -> str:
    """A parameter as text that holds no memory address and no order of a set."""
    match value:
        case None | bool() | int() | str():
            return repr(value)
        case enum.Enum():
            return f"{type(value).__name__}.{value.name}"
        case float() | complex() | np.generic():
            return f"{type(value).__name__}({value!r})"
        case np.dtype():
            return value.name
        case tuple() | list():
            name = type(value).__name__ if hasattr(value, "_fields") else ""
            return f"{name}({', '.join(map(stable_text, value))})"
        case set() | frozenset():
            return f"{{{', '.join(sorted(map(stable_text, value)))}}}"
        case Mapping():
            return f"{{{', '.join(f'{stable_text(key)}: {stable_text(value[key])}' for key in value)}}}"
        case np.ndarray():
            return f"array({value.dtype.name}, {value.shape}, {hashlib.sha256(value.tobytes()).hexdigest()})"
        case functools.partial():
            return f"partial({stable_text(value.func)}, {stable_text(value.args)}, {stable_text(value.keywords)})"
        case type():
            return f"{value.__module__}.{value.__qualname__}"
    if compat.is_jaxpr(value):
        return _jaxpr(value)
    if isinstance(value, jax.Array):
        return _array(value)
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return _without_addresses(repr(value))


def _array(value: Any) -> str:
    if jnp.issubdtype(value.dtype, jax.dtypes.extended):
        return f"key({jax.random.key_impl(value)}, {stable_text(np.asarray(jax.random.key_data(value)))})"
    return stable_text(np.asarray(value))


def _jaxpr(value: Any) -> str:
    """A jaxpr with its variables numbered; JAX's own printing would do, but for addresses in parameters."""
    jaxpr, consts = compat.opened(value)
    number: dict[Any, int] = {}

    def define(var: Any) -> str:
        return f"{number.setdefault(var, len(number))}:{_aval(var.aval)}"

    def read(atom: Any) -> str:
        return f"({stable_text(atom.val)})" if isinstance(atom, compat.Literal) else str(number[atom])

    lines = [" ".join(map(define, [*jaxpr.constvars, *jaxpr.invars])), *map(stable_text, consts)]
    for eqn in jaxpr.eqns:
        read_text = " ".join(map(read, eqn.invars))
        lines.append(f"{' '.join(map(define, eqn.outvars))} = {eqn.primitive.name}[{_params(eqn.params)}] {read_text}")
    return "{" + "; ".join([*lines, " ".join(map(read, jaxpr.outvars))]) + "}"


def _without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x", text)
