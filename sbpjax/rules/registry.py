"""The table of rules: primitive name to the function that writes its rule.

>>> from sbpjax.rules.notation import build
>>> @rule("my_kernel")
... def my_kernel(operands, results, **params):
...     return build("b i, b j -> b i j", operands, results)
>>> _ = _MAKERS.pop("my_kernel")
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from sbpjax.errors import InvalidRule
from sbpjax.rules.rule import Rule

Maker: TypeAlias = Callable[..., "Rule | None"]
"""`maker(operands, results, **params)` writes the rule of one op from abstract values and parameters; None: it has no
rule with these parameters, and is computed whole on every device."""

_MAKERS: dict[str, Maker] = {}
_rules: dict[Hashable, Rule | None] = {}


class Applied(Protocol):
    """A primitive with its parameters: an `Op` of the graph, or an equation of a jaxpr."""

    @property
    def primitive(self) -> Any:
        """The JAX primitive."""
        ...

    @property
    def params(self) -> Mapping[str, Any]:
        """Its parameters."""
        ...


def rule(*primitives: Any, replace: bool = False) -> Callable[[Maker], Maker]:
    """Register a function as the rule of some primitives, given by name or as JAX's `Primitive`.

    Args:
        primitives: names or primitives.
        replace: whether an earlier rule of the same primitive gives way.

    Raises:
        InvalidRule: a primitive has a rule already, and `replace` is false.
    """

    def register(maker: Maker) -> Maker:
        for primitive in primitives:
            name = primitive if isinstance(primitive, str) else primitive.name
            if name in _MAKERS and not replace:
                raise InvalidRule(
                    f"primitive {name!r} has a rule already; pass replace=True to put another in its place"
                )
            _MAKERS[name] = maker
        _rules.clear()
        return maker

    return register


def registered() -> Mapping[str, Maker]:
    """The rules by primitive name."""
    return MappingProxyType(_MAKERS)


def rule_of(op: Applied, operands: Sequence[Any], results: Sequence[Any]) -> Rule | None:
    """The rule of an op whose operands and results have these abstract values; None where there is none.

    Equal primitives, parameters, shapes and dtypes share one rule: a step repeats few distinct ops many times.

    Raises:
        InvalidRule: the rule does not fit the op; the message says which op, and where it stands in the user's model.
    """
    maker = _MAKERS.get(op.primitive.name)
    if maker is None:
        return None
    key = _key(op, operands, results)
    if key is not None and key in _rules:
        return _rules[key]
    try:
        made = maker(operands, results, **op.params)
    except InvalidRule as error:
        where = getattr(op, "source", None)
        raise InvalidRule(f"the rule of {op.primitive.name}{f' in {where}' if where else ''}: {error}") from error
    if key is not None:
        _rules[key] = made
    return made


def _key(op: Applied, operands: Sequence[Any], results: Sequence[Any]) -> Hashable | None:
    key = (
        op.primitive.name,
        tuple(op.params.items()),
        tuple((a.shape, a.dtype) for a in operands),
        tuple((a.shape, a.dtype) for a in results),
    )
    try:
        hash(key)
    except TypeError:  # a parameter such as a numpy array
        return None
    return key
