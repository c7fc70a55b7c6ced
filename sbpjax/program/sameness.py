"""Whether two pytree structures mean the same, although Python does not call them equal.

A TrainState holds its optimizer's functions as static fields, and `optax.adam(1e-3)` made twice gives two unequal
functions with the same code over the same values. Who plans with `jax.eval_shape(init_state, key)` and then makes the
state has both. So static fields are compared by what they are made of: code, defaults and closed-over values.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import Any

import jax
import numpy as np

Pairs = frozenset[tuple[int, int]]
"""Pairs that are being compared further out: a cycle is the same unless something else differs."""


def same_structure(one: Any, other: Any) -> bool:
    """Whether two pytree definitions have the same nodes, keys and (by their make) static fields."""
    if one == other:
        return True
    data, other_data = one.node_data(), other.node_data()
    if data is None or other_data is None:
        return data is None and other_data is None and one.num_leaves == other.num_leaves
    children, other_children = one.children(), other.children()
    return (
        data[0] is other_data[0]
        and len(children) == len(other_children)
        and same(data[1], other_data[1])
        and all(map(same_structure, children, other_children))
    )


def same(one: Any, other: Any, within: Pairs = frozenset()) -> bool:
    """Whether two static values are made of the same parts."""
    if one is other or (id(one), id(other)) in within:
        return True
    if type(one) is not type(other):
        return False
    within = within | {(id(one), id(other))}
    match one:
        case np.ndarray() | jax.Array():
            return one.shape == other.shape and one.dtype == other.dtype and bool(np.array_equal(one, other))
        case types.FunctionType():
            mine, theirs = ((f.__defaults__, f.__kwdefaults__, _closed_over(f)) for f in (one, other))
            return one.__code__ == other.__code__ and same(mine, theirs, within)
        case types.MethodType():
            return same((one.__func__, one.__self__), (other.__func__, other.__self__), within)
        case functools.partial():
            return same((one.func, one.args, one.keywords), (other.func, other.args, other.keywords), within)
        case tuple() | list():
            return len(one) == len(other) and all(same(a, b, within) for a, b in zip(one, other, strict=True))
        case dict():
            return list(one) == list(other) and all(same(one[key], other[key], within) for key in one)
    if one == other:
        return True
    if dataclasses.is_dataclass(one):
        return all(
            same(getattr(one, f.name), getattr(other, f.name), within) for f in dataclasses.fields(one) if f.compare
        )
    return bool(getattr(one, "__dict__", None)) and same(vars(one), vars(other), within)


def _closed_over(function: types.FunctionType) -> tuple[Any, ...]:
    # A variable that is not set yet has an empty cell, which equals nothing but another empty one.
    cells = function.__closure__ or ()
    return tuple(cell.cell_contents if cell != types.CellType() else types.CellType for cell in cells)
