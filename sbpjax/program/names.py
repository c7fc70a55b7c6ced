"""Names that a user recognises: of the leaves of a call and its result, and of the arrays a function closed over.

A leaf is named as one would write it in Python, with dots for all of keys, attributes and indices:
`state.params.layers_0.kernel`. The argument's own name comes from the function's signature.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey


def key_text(key: Any) -> str:
    """One step of a pytree path as text."""
    match key:
        case DictKey(key=name) | FlattenedIndexKey(key=name):
            return str(name)
        case GetAttrKey(name=name):
            return name
        case SequenceKey(idx=index):
            return str(index)
        case _:
            return str(key).strip(".[]'\"")


def dotted(*parts: Any) -> str:
    """Join what is not empty by dots."""
    return ".".join(text for part in parts if (text := str(part)))


def tree_paths(tree: Any, root: str = "", is_leaf: Callable[[Any], bool] | None = None) -> list[tuple[str, Any]]:
    """The leaves of a pytree, each with its dotted path below `root`."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_leaf)
    return [(dotted(root, *map(key_text, path)), leaf) for path, leaf in flat]


def distinct(paths: Sequence[str]) -> list[str]:
    """The paths, those that were there before numbered: keys that hold dots can make two leaves' paths alike."""
    taken = set(paths)
    seen: set[str] = set()
    found: list[str] = []
    for path in paths:
        name = path
        if name in seen:
            name = next(f"{path}#{n}" for n in itertools.count(2) if f"{path}#{n}" not in taken)
            taken.add(name)
        seen.add(name)
        found.append(name)
    return found


def result_root(tree: Any) -> str:
    """A result that is one bare array has no keys: it is called `result`."""
    return "result" if jax.tree_util.all_leaves([tree]) else ""


def innermost(fn: Any) -> Any:
    """The function under `functools.wraps`, partial application and bound methods."""
    while True:
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif inspect.ismethod(fn):
            fn = fn.__func__
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        elif not isinstance(fn, types.FunctionType) and isinstance(getattr(fn, "__call__", None), types.MethodType):  # noqa: B004
            fn = fn.__call__
        else:
            return fn


def function_name(fn: Any) -> str:
    """What to call a function in messages."""
    return getattr(fn, "__name__", None) or getattr(innermost(fn), "__name__", None) or type(fn).__name__


def argument_names(fn: Any, count: int) -> list[str]:
    """Names of the first `count` positional arguments: `*args` become `args.0`, and what is unknown `arg0`."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}.{i}" for i in range(max(0, count - len(names)))]
    names += [f"arg{i}" for i in range(len(names), count)]
    return names[:count]


def closure_names(fn: Any, values: Sequence[Any]) -> list[str]:
    """A name for each array that `fn` closed over: that of the variable that holds it, else its number.

    Found by identity among the function's enclosing and global variables, into the pytrees that they hold.
    """
    found: dict[int, str] = {}
    for name, value in _captured(fn):
        for path, leaf in tree_paths(value, name):
            found.setdefault(id(leaf), path)
    names: list[str] = []
    for i, value in enumerate(values):
        name = found.get(id(_held(value)), str(i))
        names.append(f"closure.{name if f'closure.{name}' not in names else i}")
    return names


def _held(value: Any) -> Any:
    """JAX holds a numpy array through a view of its own: the array that the user knows."""
    base = getattr(value, "base", None) if isinstance(value, np.ndarray) else None
    return base if isinstance(base, np.ndarray) and base.shape == value.shape else value


def _captured(fn: Any) -> Iterator[tuple[str, Any]]:
    """Variables that a function can see without being passed them; those of `functools.partial` included."""
    while isinstance(fn, functools.partial) or inspect.ismethod(fn) or hasattr(fn, "__wrapped__"):
        if isinstance(fn, functools.partial):
            yield from zip(argument_names(fn.func, len(fn.args)), fn.args, strict=True)
            yield from fn.keywords.items()
            fn = fn.func
        elif inspect.ismethod(fn):
            yield from getattr(fn.__self__, "__dict__", {}).items()
            fn = fn.__func__
        else:
            fn = fn.__wrapped__
    if not isinstance(fn, types.FunctionType):
        yield from getattr(fn, "__dict__", {}).items()
        return
    yield from inspect.getclosurevars(fn).nonlocals.items()
    for name in sorted(_global_names(fn.__code__)):
        if name in fn.__globals__:
            yield name, fn.__globals__[name]


def _global_names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names
