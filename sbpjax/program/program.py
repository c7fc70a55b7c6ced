"""A traced function together with all that is needed to call it again: its pytrees, names, donation and state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sbpjax.program.graph import Graph

Role: TypeAlias = Literal["parameter", "optimizer", "batch", "other"]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array among the arguments.

    Attributes:
        path: `state.params.layers_0.kernel`: the argument's name, then keys, attributes and indices joined by dots.
            Values that the function closed over are `closure.table`, by the variable that holds them, or `closure.0`.
        role: `parameter` (carried and read by the forward pass, a parameter by its path or nnx type, or closed over),
            `optimizer` (carried, floating, read by the update only), `batch` (not carried, arrays of data), `other`
            (keys, counters, statistics). All rules: `program.roles`.
        donated: whether the caller gives the buffer away.
        carried_to: the position among the results that holds its next value, or None.
    """

    path: str
    role: Role
    donated: bool
    carried_to: int | None


@dataclass(frozen=True, eq=False)
class Program:
    """A function traced for given shapes.

    Attributes:
        name: the function's name.
        graph: its ops. Graph inputs are the leaves, in order: first the closed-over values, then the arguments.
        leaves: one for each graph input.
        result_paths: one for each graph output: `0.params.dense.kernel`, like leaves' paths.
        closure: the closed-over arrays, the values of the first graph inputs.
        in_tree: the pytree of `(args, kwargs)` over the dynamic leaves; nnx objects appear as `nnx.State`s.
        out_tree: the pytree of the result over graph outputs; with nnx objects, of (state of the arguments, of the
            keyword arguments, result).
        static_argnums: positions that are compile-time constants (absent from `in_tree`).
        flatten_call: `(args, kwargs) -> list of dynamic leaves` for any call of the same form, else ArgumentMismatch.
        finish: turns (list of result leaves, args, kwargs) into what the user's function returns, with nnx's in-place
            updates done; for plain functions it unflattens.
        mutates: whether `finish` has effects (nnx): then the call cannot be one pure jitted function.
        fingerprint: a hash of the jaxpr, shapes, dtypes, names, donation: the same in another process.
    """

    name: str
    graph: Graph
    leaves: tuple[Leaf, ...]
    result_paths: tuple[str, ...]
    closure: tuple[Any, ...]
    in_tree: Any
    out_tree: Any
    static_argnums: tuple[int, ...]
    flatten_call: Callable[..., list[Any]]
    finish: Callable[..., Any]
    mutates: bool
    fingerprint: str
