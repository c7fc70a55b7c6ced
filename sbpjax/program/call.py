"""How a call of the user's function becomes a call of a pure one: which arguments are static, and how leaves are named.

`PlainCall` serves functions of pytrees. `program.stateful` serves functions of nnx objects and has the same methods.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from sbpjax import compat
from sbpjax.compat import JitOptions
from sbpjax.errors import ArgumentMismatch, InvalidOption, NotTraceable
from sbpjax.program.names import argument_names, function_name, result_root, tree_paths
from sbpjax.program.scopes import linen_scopes
from sbpjax.program.variables import NamedLeaf, leaves


@dataclass(frozen=True, slots=True)
class Argument:
    """One dynamic argument with its name, in the order of the leaves."""

    name: str
    value: Any


def unwrap_jit(fn: Any, options: JitOptions) -> tuple[Callable[..., Any], JitOptions]:
    """The function under `jax.jit`, and its own options joined with those given."""
    if inspect.ismethod(fn) and compat.is_jitted(fn.__func__):
        function = compat.under_jit(fn.__func__)
        own = _without_self(compat.jit_options(fn.__func__), next(iter(inspect.signature(function).parameters)))
        return functools.partial(function, fn.__self__), _joined(own, options)
    if compat.is_jitted(fn):
        return compat.under_jit(fn), _joined(compat.jit_options(fn), options)
    return fn, options


def _without_self(options: JitOptions, name: str) -> JitOptions:
    """Options of a bound method, from those of its function, whose first parameter is `name`."""
    return JitOptions(
        static_argnums=tuple(n - (n > 0) for n in options.static_argnums if n),
        static_argnames=tuple(n for n in options.static_argnames if n != name),
        donate_argnums=tuple(n - (n > 0) for n in options.donate_argnums if n),
        donate_argnames=tuple(n for n in options.donate_argnames if n != name),
    )


def _joined(own: JitOptions, given: JitOptions) -> JitOptions:
    def union(name: str) -> tuple[Any, ...]:
        return tuple(dict.fromkeys((*getattr(own, name), *getattr(given, name))))

    names = ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames")
    return JitOptions(*(union(name) for name in names))


class PlainCall:
    """Calls of a function of pytrees.

    Args:
        fn: the function, without `jax.jit`.
        options: static and donated arguments.
    """

    mutates = False

    def __init__(self, fn: Callable[..., Any], options: JitOptions) -> None:
        self.fn = fn
        self.options = options
        self.name = function_name(fn)

    def purify(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same call of the pure function."""
        return args, kwargs

    def restore(self, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the user's function returns, given what the pure one did."""
        return result

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any], abstract: Callable[[Any], Any]) -> Any:
        """JAX's trace of the pure function; `abstract` makes a leaf a ShapeDtypeStruct."""

        @functools.wraps(self.fn)
        def in_scopes(*args: Any, **kwargs: Any) -> Any:
            with linen_scopes():
                return self.fn(*args, **kwargs)

        return jit(in_scopes, self.options).trace(*self.map_dynamic(abstract, args), **self.map_named(abstract, kwargs))

    def argument_leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[NamedLeaf]]:
        """The leaves of each dynamic argument, in order."""
        return [list(leaves(argument.value, argument.name)) for argument in self.arguments(args, kwargs)]

    def result_leaves(self, result: Any) -> list[NamedLeaf]:
        """The leaves of the pure result."""
        return list(leaves(result, result_root(result)))

    def shown_trees(self, args: tuple[Any, ...], kwargs: dict[str, Any], out_tree: Any) -> tuple[Any, Any]:
        """The trees of dynamic arguments and result as a user would write them."""
        return jax.tree.structure(self.dynamic(args, kwargs)), out_tree

    # --- static arguments ----------------------------------------------------------------------------------------

    def static_positions(self, count: int) -> set[int]:
        """Positions, among `count` arguments, of compile-time constants."""
        return {n % count if count else n for n in self.options.static_argnums if -count <= n < count}

    def dynamic(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments without the static ones."""
        static = self.static_positions(len(args))
        names = self.options.static_argnames
        return (
            tuple(arg for i, arg in enumerate(args) if i not in static),
            {name: value for name, value in kwargs.items() if name not in names},
        )

    def static(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The static arguments by name."""
        if not (self.options.static_argnums or self.options.static_argnames):
            return {}
        names = argument_names(self.fn, len(args))
        by_position = {names[i]: args[i] for i in sorted(self.static_positions(len(args)))}
        by_name = {name: value for name, value in kwargs.items() if name in self.options.static_argnames}
        return by_position | by_name

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Argument]:
        """The dynamic arguments, named, in the order of their leaves: positions, then keywords sorted."""
        static = self.static_positions(len(args))
        names = argument_names(self.fn, len(args))
        positional = [Argument(names[i], arg) for i, arg in enumerate(args) if i not in static]
        keywords = sorted(name for name in kwargs if name not in self.options.static_argnames)
        return positional + [Argument(name, kwargs[name]) for name in keywords]

    def map_dynamic(self, fn: Callable[[Any], Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
        """`fn` over the leaves of the positional arguments that are not static."""
        static = self.static_positions(len(args))
        return tuple(arg if i in static else jax.tree.map(fn, arg) for i, arg in enumerate(args))

    def map_named(self, fn: Callable[[Any], Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """`fn` over the leaves of the keyword arguments that are not static."""
        names = self.options.static_argnames
        return {name: value if name in names else jax.tree.map(fn, value) for name, value in kwargs.items()}

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuse arguments that the function or JAX cannot take.

        Raises:
            ArgumentMismatch: there are too few or too many.
            NotTraceable: a static argument that cannot be hashed, or a leaf that is no array.
        """
        refuse_other_arguments(self.fn, args, kwargs)
        for name, value in self.static(args, kwargs).items():
            try:
                hash(value)
            except TypeError as error:
                raise NotTraceable(
                    f"{self.name}: the static argument {name} cannot be hashed ({type(value).__name__}): "
                    "pass a tuple or a frozen dataclass, or make it an array argument"
                ) from error
        for argument in self.arguments(args, kwargs):
            for path, leaf in tree_paths(argument.value, argument.name, is_leaf=compat.is_nnx_node):
                self._refuse_mutable_array(path, leaf)
                if not compat.is_nnx_node(leaf):
                    self._check_leaf(path, argument.name, leaf)

    def _refuse_mutable_array(self, path: str, leaf: Any) -> None:
        if compat.is_mutable_array(leaf):
            raise NotTraceable(f"{self.name}: {path} is a mutable array (jax.Ref): pass and return its value instead")

    def _check_leaf(self, path: str, argument: str, leaf: Any) -> None:
        try:
            compat.aval_of(leaf)
        except TypeError as error:
            raise NotTraceable(
                f"{self.name}: {path} is a {type(leaf).__name__}, not an array: name {argument} in static_argnums, "
                "or keep it in a static field of its container"
            ) from error

    def same_static(self, traced: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuse a call whose static arguments differ from the traced ones.

        Raises:
            ArgumentMismatch: one differs.
        """
        given = self.static(args, kwargs)
        for name in [*traced, *(name for name in given if name not in traced)]:
            if name not in given or name not in traced or given[name] != traced[name]:
                raise ArgumentMismatch(
                    f"{self.name}: the static argument {name} was {traced.get(name, 'absent')!r} when this was traced "
                    f"and is {given.get(name, 'absent')!r} now: plan again for it"
                )


def refuse_other_arguments(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a call with too few or too many arguments before it is made.

    Raises:
        ArgumentMismatch: says which is missing, or is one too many.
    """
    try:
        # As the function is called: what functools.wraps tells of another one may not be so.
        signature = inspect.signature(fn, follow_wrapped=False)
    except (TypeError, ValueError):  # some builtins have none
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        name = function_name(fn)
        given = len(args) + len(kwargs)
        raise ArgumentMismatch(
            f"{name} takes {signature}, and {given} {'argument was' if given == 1 else 'arguments were'} given: {error}"
        ) from error


def jit(fn: Callable[..., Any], options: JitOptions) -> Any:
    """`jax.jit` with these options.

    Raises:
        InvalidOption: they contradict each other or the function's signature.
    """
    try:
        return jax.jit(
            fn,
            static_argnums=options.static_argnums or None,
            static_argnames=options.static_argnames or None,
            donate_argnums=options.donate_argnums or None,
            donate_argnames=options.donate_argnames or None,
        )
    except ValueError as error:
        raise InvalidOption(f"{function_name(fn)}: {error} (positions count from 0)") from error
