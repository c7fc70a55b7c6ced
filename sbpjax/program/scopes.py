"""Which module of the user's model an op belongs to.

While a function is being traced, every call of a Flax module stands in a named scope that carries the module's whole
path, behind a mark. An equation's name stack then tells its module, whatever transformations, shared modules or other
scopes lie around it: the last marked scope counts, together with the scopes that the user has opened within.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import flax.linen as nn
import jax
from flax import nnx

MARK: Final = "//"
PATH_ATTRIBUTE: Final = "sbpjax_path"
RECOMPUTED: Final = "rematted_computation"
"""The scope in which JAX puts what a remat computes again."""


def module_of(scopes: Sequence[str]) -> str:
    """The module path that a stack of scopes tells: `layers_0/attention/query`, or the plain scopes without a mark."""
    marked = [i for i, scope in enumerate(scopes) if scope.startswith(MARK)]
    names = [scopes[marked[-1]].removeprefix(MARK), *scopes[marked[-1] + 1 :]] if marked else list(scopes)
    return "/".join(name for name in names if name and name != RECOMPUTED)


@dataclass(frozen=True, slots=True)
class Origin:
    """What a name stack says: the module, and whether JAX transposed, recomputed or differentiated there."""

    module: str
    transposed: bool
    recomputed: bool
    differentiated: bool


def origin_of(scopes: Sequence[str], transforms: Collection[str]) -> Origin:
    """Read a name stack that has been taken apart."""
    return Origin(module_of(scopes), "transpose" in transforms, RECOMPUTED in scopes, "jvp" in transforms)


def module_scope(path: str) -> contextlib.AbstractContextManager[Any]:
    """The named scope of one module."""
    return jax.named_scope(MARK + path)


def linen_scopes() -> contextlib.AbstractContextManager[Any]:
    """While this is entered, linen modules say where they are."""
    return nn.intercept_methods(_in_own_scope)


def _in_own_scope(call: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
    module = context.module
    if module.scope is None:
        return call(*args, **kwargs)
    with module_scope("/".join(module.path)):
        return call(*args, **kwargs)


@contextlib.contextmanager
def nnx_scopes(roots: Iterable[tuple[str, Any]]) -> Iterator[None]:
    """While this is entered, calls of the modules within `roots` (names and nnx objects) say where they are.

    nnx has no names of its own, so each module carries its path in an attribute (it survives split and merge inside of
    nnx transformations) and its class's methods open the scope. A single module is not named, several are.
    """
    models = [(name, root) for name, root in roots if isinstance(root, nnx.Module)]
    modules: dict[int, Any] = {}
    for name, model in models:
        for path, node in nnx.iter_graph(model):
            if isinstance(node, nnx.Module) and id(node) not in modules:
                modules[id(node)] = node
                setattr(node, PATH_ATTRIBUTE, "/".join(map(str, path if len(models) == 1 else (name, *path))))
    with contextlib.ExitStack() as undo:
        for cls in {type(node): None for node in modules.values()}:
            undo.enter_context(_naming_calls(cls))
        yield


def forget_paths(tree: Any) -> None:
    """Take away the attributes that `nnx_scopes` left on modules within `tree`."""
    for _, node in nnx.iter_graph(tree):
        if isinstance(node, nnx.Module) and hasattr(node, PATH_ATTRIBUTE):
            delattr(node, PATH_ATTRIBUTE)


@contextlib.contextmanager
def _naming_calls(cls: type) -> Iterator[None]:
    """While this is entered, public methods of a module class open the scope of the module that they are called on."""
    before = {name: vars(cls).get(name) for name in _public_methods(cls)}
    for name in before:
        setattr(cls, name, _in_scope_of_self(inspect.getattr_static(cls, name)))
    try:
        yield
    finally:
        for name, own in before.items():
            if own is None:
                delattr(cls, name)
            else:
                setattr(cls, name, own)


def _public_methods(cls: type) -> list[str]:
    """`__call__`, however it is decorated, and the plain methods that a class does not have from nnx itself."""
    bases = [base for base in cls.__mro__ if not issubclass(nnx.Module, base)]
    methods = [(name, value) for base in bases for name, value in vars(base).items()]
    plain = [name for name, value in methods if isinstance(value, types.FunctionType) and not name.startswith("_")]
    return list(dict.fromkeys([name for name, _ in methods if name == "__call__"] + plain))


def _in_scope_of_self(method: Any) -> Callable[..., Any]:
    @functools.wraps(method)
    def named(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = method.__get__(self, type(self))
        path = getattr(self, PATH_ATTRIBUTE, None)
        if path is None:
            return call(*args, **kwargs)
        with module_scope(path):
            return call(*args, **kwargs)

    return named
