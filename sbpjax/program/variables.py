"""The leaves of pytrees and of nnx objects under the names that a user knows, with the roles that variables tell."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
from flax import nnx

from sbpjax import compat
from sbpjax.program.names import dotted, tree_paths
from sbpjax.program.program import Role


@dataclass(frozen=True, slots=True)
class NamedLeaf:
    """A leaf of the arguments or the result before it is judged.

    Attributes:
        path: its name.
        kind: the role that its nnx variable type tells, or None.
        stateful: whether it is state of an nnx object.
    """

    path: str
    kind: Role | None = None
    stateful: bool = False


def leaves(tree: Any, root: str) -> Iterator[NamedLeaf]:
    """The leaves of a pytree, in which nnx variables (those of an `nnx.State`) are containers without a name."""
    for path, leaf in tree_paths(tree, root, is_leaf=lambda x: isinstance(x, nnx.Variable)):
        if isinstance(leaf, nnx.Variable):
            yield from _variable_leaves(path, leaf)
        else:
            yield NamedLeaf(path)


def objects(tree: Any, root: str) -> Iterator[tuple[str, Any]]:
    """The nnx objects in a pytree, with their paths."""
    for path, leaf in tree_paths(tree, root, is_leaf=compat.is_nnx_node):
        if compat.is_nnx_node(leaf):
            yield path, leaf


def state_leaves(tree: Any, root: str, seen: Any) -> Iterator[NamedLeaf]:
    """The leaves of a pytree that may hold nnx objects, in the order in which nnx flattens them.

    Args:
        tree: the pytree.
        root: its name.
        seen: objects that have been met already (`compat.nnx_seen()`): their state is not met again.
    """
    for path, leaf in tree_paths(tree, root, is_leaf=compat.is_nnx_node):
        if not compat.is_nnx_node(leaf):
            yield NamedLeaf(path)
            continue
        for inner, variable in compat.nnx_variables(leaf, seen):
            yield from _variable_leaves(dotted(path, *inner), variable, stateful=True)


def with_states(tree: Any) -> Any:
    """The structure of a pytree with an `nnx.State` in place of each nnx object, leaves in nnx's own order."""
    seen = compat.nnx_seen()
    numbers = itertools.count()

    def state(leaf: Any) -> Any:
        if not compat.is_nnx_node(leaf):
            return next(numbers)
        variables = compat.nnx_variables(leaf, seen)
        values = {path: jax.tree.map(lambda _: next(numbers), _value(variable)) for path, variable in variables}
        if () in values:
            return values[()]
        nested = nnx.State(nnx.traversals.unflatten_mapping(values))
        order = jax.tree.leaves(nested)
        # A State sorts its keys; where nnx has another order (keys of mixed types), a flat mapping keeps it.
        if order == sorted(order):
            return nested
        return OrderedDict((dotted(*path), value) for path, value in values.items())

    return jax.tree.structure(jax.tree.map(state, tree, is_leaf=compat.is_nnx_node))


def _variable_leaves(path: str, variable: Any, *, stateful: bool = False) -> Iterator[NamedLeaf]:
    for inner, _ in tree_paths(_value(variable), path):
        yield NamedLeaf(inner, _kind(variable), stateful)


def _value(variable: Any) -> Any:
    return variable.get_value() if isinstance(variable, nnx.Variable) else variable


def _kind(variable: Any) -> Role | None:
    """The role that a variable's type tells."""
    if isinstance(variable, nnx.Param):
        return "parameter"
    if isinstance(variable, nnx.optimizer.OptState):
        return "optimizer"
    others = nnx.RngState | nnx.BatchStat | nnx.Cache | nnx.Intermediate | nnx.training.metrics.MetricState
    return "other" if isinstance(variable, others) else None
