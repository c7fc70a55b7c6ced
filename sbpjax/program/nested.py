"""Jaxprs that an op keeps within its parameters: branches of a `cond`, condition and body of a `while`.

Such an op is bound as it stands, whole on every device. What would speak of a mesh in there (a sharding constraint)
means nothing then, and JAX refuses it under `shard_map`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr

Rewrite = Callable[[Any], Any]
"""From an equation to the one that takes its place."""


def equations(params: Mapping[str, Any]) -> Iterator[Any]:
    """All equations within an op's parameters, however deep."""
    for jaxpr in _jaxprs(params):
        for eqn in jaxpr.eqns:
            yield eqn
            yield from equations(eqn.params)


def rewritten(params: Mapping[str, Any], rewrite: Rewrite) -> dict[str, Any]:
    """Parameters with every equation within them rewritten; what stays the same stays the same object."""
    return {name: _value(value, rewrite) for name, value in params.items()}


def _jaxprs(params: Mapping[str, Any]) -> Iterator[Jaxpr]:
    for value in params.values():
        for inner in value if isinstance(value, tuple | list) else (value,):
            if isinstance(inner, ClosedJaxpr):
                yield inner.jaxpr
            elif isinstance(inner, Jaxpr):
                yield inner


def _value(value: Any, rewrite: Rewrite) -> Any:
    if isinstance(value, ClosedJaxpr):
        inner = _value(value.jaxpr, rewrite)
        return value if inner is value.jaxpr else value.replace(jaxpr=inner)
    if isinstance(value, Jaxpr):
        eqns = [_equation(eqn, rewrite) for eqn in value.eqns]
        return value if all(map(lambda a, b: a is b, eqns, value.eqns)) else value.replace(eqns=eqns)
    if type(value) in (tuple, list):
        items = [_value(item, rewrite) for item in value]
        return value if all(map(lambda a, b: a is b, items, value)) else type(value)(items)
    return value


def _equation(eqn: Any, rewrite: Rewrite) -> Any:
    params = {name: _value(value, rewrite) for name, value in eqn.params.items()}
    if any(params[name] is not eqn.params[name] for name in params):
        eqn = eqn.replace(params=params)
    return rewrite(eqn)
