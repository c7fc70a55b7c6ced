"""Calls of functions that take nnx modules, optimizers, metrics or rngs, and change them in place, as `nnx.jit` does.

The pure function is the one that `nnx.jit` itself makes: state goes in as pytrees and comes out as pytrees, and the
same machinery of nnx writes it back. So ties between variables, the identity of returned modules and changes of
structure are what they are under `nnx.jit`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
from flax import nnx

from sbpjax import compat
from sbpjax.compat import JitOptions
from sbpjax.errors import NotTraceable
from sbpjax.program.call import NamedLeaf, PlainCall
from sbpjax.program.names import argument_names, dotted, result_root, tree_paths
from sbpjax.program.program import Role
from sbpjax.program.scopes import forget_paths, linen_scopes, nnx_scopes


def has_state(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call must go through nnx."""
    if isinstance(fn, compat.NnxJitted):
        return True
    leaves = jax.tree.leaves((args, kwargs), is_leaf=compat.is_nnx_node)
    return any(map(compat.is_nnx_node, leaves))


class StatefulCall(PlainCall):
    """Calls of a function of nnx objects.

    Args:
        fn: the function, without `nnx.jit`.
        options: static and donated arguments.
    """

    mutates = True

    def __init__(self, fn: Callable[..., Any], options: JitOptions) -> None:
        super().__init__(fn, options)
        self._result_leaves: list[NamedLeaf] = []
        self._shown_result: Any = None
        self._jitted: Any = nnx.jit(
            self._named_function(),
            static_argnums=options.static_argnums or None,
            static_argnames=options.static_argnames or None,
            donate_argnums=options.donate_argnums or None,
            donate_argnames=options.donate_argnames or None,
            graph=True,
            graph_updates=True,
        )

    def _named_function(self) -> Callable[..., Any]:
        """The user's function, which while traced says module paths, and notes the leaves of its result."""
        fn = self.fn

        @functools.wraps(fn)
        def in_scopes(*args: Any, **kwargs: Any) -> Any:
            roots = {argument.name: argument.value for argument in self.arguments(args, kwargs)}
            with linen_scopes(), nnx_scopes(roots):
                result = fn(*args, **kwargs)
            forget_paths((args, kwargs, result))
            self._result_leaves = list(self._leaves_of_result(args, kwargs, result))
            self._shown_result = _with_states((*compat.nnx_nodes_only((args, kwargs)), result))
            return result

        return in_scopes

    def purify(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments with state in place of objects."""
        with compat.nnx_context(self._jitted):
            return compat.nnx_split(self._jitted, args, kwargs)

    def restore(self, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Write the new state into the caller's objects and return what the user's function returns."""
        with compat.nnx_context(self._jitted):
            compat.nnx_split(self._jitted, args, kwargs)
            return compat.nnx_update(self._jitted, result)

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any], abstract: Callable[[Any], Any]) -> Any:
        """JAX's trace of the pure function."""
        with compat.nnx_context(self._jitted):
            pure_args, pure_kwargs = compat.nnx_split(self._jitted, args, kwargs)
            pure_args = self.map_dynamic(abstract, pure_args)
            return compat.nnx_inner(self._jitted)[1].trace(*pure_args, **self.map_named(abstract, pure_kwargs))

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuse what JAX or nnx cannot take.

        Raises:
            NotTraceable: as for plain functions; or hijax variables.
        """
        super().check(args, kwargs)
        seen = compat.nnx_seen()
        for argument in self.arguments(args, kwargs):
            for path, node in _nodes(argument.value, argument.name):
                for inner, variable in compat.nnx_variables(node, seen):
                    self._refuse_mutable_array(dotted(path, *inner), variable)
                    if compat.nnx_hijax(variable):
                        raise NotTraceable(
                            f"{self.name}: {dotted(path, *inner)} is a hijax variable, which nnx.jit itself does not "
                            "support: create the module without flax_hijax_variable (or var_defaults(hijax=True))"
                        )

    def argument_leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[NamedLeaf]]:
        """The leaves of each dynamic argument; a variable shared by several belongs to the first."""
        seen = compat.nnx_seen()
        return [list(_leaves(argument.value, argument.name, seen)) for argument in self.arguments(args, kwargs)]

    def result_leaves(self, result: Any) -> list[NamedLeaf]:
        """The leaves of the pure result: the arguments' state, then what the user's function returned."""
        return self._result_leaves

    def shown_trees(self, args: tuple[Any, ...], kwargs: dict[str, Any], out_tree: Any) -> tuple[Any, Any]:
        """The trees of arguments and result with an `nnx.State` in place of each object.

        A variable that several objects share stands in the first. The result is (state of the arguments, of the
        keyword arguments, what the user's function returns).
        """
        return _with_states(self.dynamic(args, kwargs)), self._shown_result

    def _leaves_of_result(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Iterator[NamedLeaf]:
        # In the order in which nnx flattens (args, kwargs, result); static arguments hold no nodes.
        seen = compat.nnx_seen()
        args, kwargs = compat.nnx_nodes_only((args, kwargs))
        for name, value in zip(argument_names(self.fn, len(args)), args, strict=True):
            yield from _leaves(value, name, seen)
        for name in sorted(kwargs):
            yield from _leaves(kwargs[name], name, seen)
        root = result_root(result) if not compat.is_nnx_node(result) else "result"
        for leaf in _leaves(result, root, seen):
            yield NamedLeaf(leaf.path, leaf.kind)


def _nodes(tree: Any, root: str) -> Iterator[tuple[str, Any]]:
    for path, leaf in tree_paths(tree, root, is_leaf=compat.is_nnx_node):
        if compat.is_nnx_node(leaf):
            yield path, leaf


def _leaves(tree: Any, root: str, seen: Any) -> Iterator[NamedLeaf]:
    """The leaves of a pytree that may hold nnx objects, those not in `seen`."""
    for path, leaf in tree_paths(tree, root, is_leaf=compat.is_nnx_node):
        if not compat.is_nnx_node(leaf):
            yield NamedLeaf(path)
            continue
        for inner, variable in compat.nnx_variables(leaf, seen):
            for value_path, _ in tree_paths(_value(variable), dotted(path, *inner)):
                yield NamedLeaf(value_path, _kind(variable), stateful=True)


def _with_states(tree: Any) -> Any:
    """The structure of a pytree with states in place of nnx objects, its leaves in the order in which nnx has them."""
    seen = compat.nnx_seen()
    numbers = itertools.count()

    def state(leaf: Any) -> Any:
        if not compat.is_nnx_node(leaf):
            return next(numbers)
        variables = compat.nnx_variables(leaf, seen)
        values = {path: jax.tree.map(lambda _: next(numbers), _value(variable)) for path, variable in variables}
        return values[()] if () in values else nnx.State(nnx.traversals.unflatten_mapping(values))

    shown = jax.tree.map(state, tree, is_leaf=compat.is_nnx_node)
    order, structure = jax.tree.flatten(shown)
    assert order == sorted(order), "nnx.State sorts its keys as nnx flattens objects"
    return structure


def _value(variable: Any) -> Any:
    return variable.get_value() if isinstance(variable, nnx.Variable) else variable


def _kind(variable: Any) -> Role | None:
    """The role that a variable's type tells."""
    if isinstance(variable, nnx.Param):
        return "parameter"
    if isinstance(variable, nnx.optimizer.OptState):
        return "optimizer"
    if isinstance(
        variable, nnx.RngState | nnx.BatchStat | nnx.Cache | nnx.Intermediate | nnx.training.metrics.MetricState
    ):
        return "other"
    return None
