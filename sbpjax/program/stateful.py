"""Calls of functions that take nnx modules, optimizers, metrics or rngs, and change them in place, as `nnx.jit` does.

The pure function is the one that `nnx.jit` itself makes: state goes in as pytrees and comes out as pytrees, and the
same machinery of nnx writes it back. So ties between variables, the identity of returned modules and changes of
structure are what they are under `nnx.jit`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
from flax import nnx

from sbpjax import compat
from sbpjax.compat import JitOptions
from sbpjax.errors import NotTraceable
from sbpjax.program.call import PlainCall
from sbpjax.program.names import argument_names, dotted, result_root
from sbpjax.program.scopes import forget_paths, linen_scopes, nnx_scopes
from sbpjax.program.variables import NamedLeaf, objects, state_leaves, with_states


def has_state(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call must go through nnx. An `nnx.State` is a pytree like others."""
    if isinstance(fn, compat.NnxJitted):
        return True
    leaves = jax.tree.leaves((args, kwargs), is_leaf=lambda x: isinstance(x, nnx.State) or compat.is_nnx_node(x))
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
            roots = [x for argument in self.arguments(args, kwargs) for x in objects(argument.value, argument.name)]
            with linen_scopes(), nnx_scopes(roots):
                result = fn(*args, **kwargs)
            forget_paths((args, kwargs, result))
            self._result_leaves = list(self._leaves_of_result(args, kwargs, result))
            self._shown_result = with_states((*compat.nnx_nodes_only((args, kwargs)), result))
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
            for path, node in objects(argument.value, argument.name):
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
        return [list(state_leaves(argument.value, argument.name, seen)) for argument in self.arguments(args, kwargs)]

    def result_leaves(self, result: Any) -> list[NamedLeaf]:
        """The leaves of the pure result: the arguments' state, then what the user's function returned."""
        return self._result_leaves

    def shown_trees(self, args: tuple[Any, ...], kwargs: dict[str, Any], out_tree: Any) -> tuple[Any, Any]:
        """The trees of arguments and result with an `nnx.State` in place of each object.

        A variable that several objects share stands in the first. The result is (state of the arguments, of the
        keyword arguments, what the user's function returns).
        """
        return with_states(self.dynamic(args, kwargs)), self._shown_result

    def _leaves_of_result(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Iterator[NamedLeaf]:
        # In the order in which nnx flattens (args, kwargs, result); static arguments hold no nodes.
        seen = compat.nnx_seen()
        args, kwargs = compat.nnx_nodes_only((args, kwargs))
        for name, value in zip(argument_names(self.fn, len(args)), args, strict=True):
            yield from state_leaves(value, name, seen)
        for name in sorted(kwargs):
            yield from state_leaves(kwargs[name], name, seen)
        root = result_root(result) if not compat.is_nnx_node(result) else "result"
        for leaf in state_leaves(result, root, seen):
            yield NamedLeaf(leaf.path, leaf.kind)
