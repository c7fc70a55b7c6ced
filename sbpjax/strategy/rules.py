"""Rules and pins as the resolver sees them: what they hold for, what they say, and where they were written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sbpjax.program.graph import Op
from sbpjax.sbp import MeshShape
from sbpjax.strategy.choice import Choice
from sbpjax.strategy.pattern import compiled, matches
from sbpjax.strategy.restrictions import Relaxed
from sbpjax.strategy.schema import ActivationRule, LeafRule, ModulePin, PathPin


@dataclass(frozen=True)
class Rule:
    """A rule of some role.

    Attributes:
        form: its filters and choices.
        origin: `fsdp.yaml, line 7, roles.batch.0`.
        shipped: whether it is of a strategy that comes with sbpjax.
    """

    form: LeafRule | ActivationRule
    origin: str
    shipped: bool = False

    @property
    def axes(self) -> Mapping[str, Choice]:
        """The choice for each mesh axis that it speaks of."""
        return self.form.axes

    def holds_for_leaf(self, path: str, layer: tuple[int, ...]) -> bool:
        """Whether a leaf of this path, one layer of which has the shape `layer`, passes the filters."""
        form = self.form
        assert isinstance(form, LeafRule)
        return (
            (not form.match or matches(form.match, path))
            and (not form.rank or len(layer) in form.rank)
            and (not form.shape or (len(layer) >= 2 and _comparison(layer) in form.shape))
        )

    def holds_for_result(self, op: Op, rank: int, residual: Collection[Op]) -> bool:
        """Whether a result of `op` passes the filters."""
        form = self.form
        assert isinstance(form, ActivationRule)
        return (
            (not form.module or matches(form.module, op.source.module, "/"))
            and (not form.primitive or op.name in form.primitive)
            and (not form.phase or op.source.phase in form.phase)
            and (not form.rank or rank in form.rank)
            and (not form.residual or op in residual)
        )


@dataclass(frozen=True)
class Pin:
    """A pin on leaves (`pattern` over their paths) or on activations (over module paths).

    Attributes:
        pattern: the pattern, without `module:`.
        form: its choices, and filters for activations.
        origin: `mine.yaml, line 7, pins.state.params.**`.
    """

    pattern: str
    form: PathPin | ModulePin
    origin: str

    @property
    def axes(self) -> Mapping[str, Choice]:
        """The choice for each mesh axis that it speaks of."""
        return self.form.axes

    @property
    def is_module(self) -> bool:
        """Whether it pins what a module's ops write."""
        return isinstance(self.form, ModulePin)

    @property
    def key(self) -> str:
        """As it is written in YAML."""
        return f"module:{self.pattern}" if self.is_module else self.pattern

    def holds_for_leaf(self, path: str) -> bool:
        """Whether it pins this leaf."""
        return compiled(self.pattern).fullmatch(path) is not None

    def holds_for_result(self, op: Op, rank: int) -> bool:
        """Whether it pins a result of `op`."""
        form = self.form
        assert isinstance(form, ModulePin)
        return (
            compiled(self.pattern, "/").fullmatch(op.source.module) is not None
            and (not form.primitive or op.name in form.primitive)
            and (not form.phase or op.source.phase in form.phase)
            and (not form.rank or rank in form.rank)
        )


def idle(
    rules: Sequence[Rule], mesh: MeshShape, used: Container[tuple[int, str]], matches: Callable[[Rule], bool], name: str
) -> Iterator[Relaxed]:
    """The user's own rules that decide nothing, and why: perhaps a pattern or a dimension is mistaken.

    Rules of shipped strategies name what many models have, and are not told of.

    Args:
        rules: of one role.
        mesh: axis sizes.
        used: the rules (by `id`) and axes that decided something.
        matches: whether a rule's filters let anything pass.
        name: of the program.
    """
    for rule in rules:
        for axis, choice in rule.axes.items():
            if rule.shipped or axis not in mesh or choice.is_free or (id(rule), axis) in used:
                continue
            why = (
                "nothing that it matches can be placed so, or is left by pins and rules before it"
                if matches(rule)
                else f"it matches nothing in {name}"
            )
            yield Relaxed(rule.origin, axis, f"{choice}: {why}")


def _comparison(layer: tuple[int, ...]) -> str:
    rows, columns = layer[-2:]
    return "square" if rows == columns else "wide" if columns > rows else "tall"
