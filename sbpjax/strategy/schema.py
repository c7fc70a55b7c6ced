"""The form of a strategy file, checked by pydantic; every complaint names file, line and key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from sbpjax.errors import InvalidStrategy
from sbpjax.program.graph import Phase
from sbpjax.sbp import P
from sbpjax.strategy.choice import Choice
from sbpjax.strategy.document import Document
from sbpjax.strategy.pattern import compiled

KernelShape = Literal["wide", "tall", "square"]


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _rules(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Ranks = Annotated[tuple[int, ...], BeforeValidator(_listed)]
AxisChoice = Annotated[Choice, BeforeValidator(Choice.parse)]


class _Rule(BaseModel):
    """Filters, and one choice for each mesh axis that the rule speaks of (all keys that are no filter)."""

    model_config = ConfigDict(extra="allow", frozen=True, arbitrary_types_allowed=True)
    __pydantic_extra__: dict[str, AxisChoice] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def axes(self) -> Mapping[str, Choice]:
        """The choice for each mesh axis."""
        return self.__pydantic_extra__

    @model_validator(mode="after")
    def _says_something(self) -> _Rule:
        if not self.axes:
            raise ValueError("names no mesh axis: add, for example, `data: S(0)`")
        return self

    def plain(self) -> dict[str, Any]:
        """As it is written in YAML."""
        filters = {k: list(v) if isinstance(v, tuple) else v for k, v in self if k in type(self).model_fields and v}
        return {**filters, **{axis: choice.plain() for axis, choice in self.axes.items()}}


class LeafRule(_Rule):
    """Holds for the leaves of a role; a filter that is absent lets all pass.

    Attributes:
        match: patterns over the leaf's path, any of which matches.
        rank: the number of dimensions, those that stack the layers of a scan not counted.
        shape: how the last two dimensions compare: `wide` (D, F) with F > D, `tall`, `square`.
    """

    match: Names = ()
    rank: Ranks = ()
    shape: Annotated[tuple[KernelShape, ...], BeforeValidator(_listed)] = ()

    @field_validator("match")
    @classmethod
    def _patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            compiled(pattern)
        return value

    @model_validator(mode="after")
    def _whole_at_rest(self) -> LeafRule:
        _refuse_partial(self.axes)
        return self


class ActivationRule(_Rule):
    """Holds for what ops write; a filter that is absent lets all pass.

    Attributes:
        module: patterns over the Flax module path, `layers_*/mlp`, parts separated by `/`.
        primitive: names of JAX primitives.
        phase: `forward`, `backward`, `remat`, `update`.
        rank: the number of dimensions.
        residual: whether only sums that carry the residual stream count.
    """

    module: Names = ()
    primitive: Names = ()
    phase: Annotated[tuple[Phase, ...], BeforeValidator(_listed)] = ()
    rank: Ranks = ()
    residual: bool = False

    @field_validator("module")
    @classmethod
    def _patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            compiled(pattern, "/")
        return value

    @model_validator(mode="after")
    def _known_words(self) -> ActivationRule:
        for axis, choice in self.axes.items():
            if {"kernel", "parameter", "heads"} & {a for a in choice.alternatives if isinstance(a, str)}:
                raise ValueError(f"{axis}={choice} speaks of parameters; an activation is S(d), B, P, split or largest")
        return self


class PathPin(_Rule):
    """A pin on the leaves that a path pattern matches."""

    @model_validator(mode="after")
    def _whole_at_rest(self) -> PathPin:
        _refuse_partial(self.axes)
        return self


class ModulePin(_Rule):
    """A pin on what the ops of a module write."""

    primitive: Names = ()
    phase: Annotated[tuple[Phase, ...], BeforeValidator(_listed)] = ()
    rank: Ranks = ()


class Roles(BaseModel):
    """Rules by role; in each role the first rule that matches and speaks of an axis decides that axis."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    parameter: Annotated[tuple[LeafRule, ...], BeforeValidator(_rules)] = ()
    optimizer: Annotated[tuple[LeafRule, ...], BeforeValidator(_rules)] = ()
    batch: Annotated[tuple[LeafRule, ...], BeforeValidator(_rules)] = ()
    other: Annotated[tuple[LeafRule, ...], BeforeValidator(_rules)] = ()
    activation: Annotated[tuple[ActivationRule, ...], BeforeValidator(_rules)] = ()


class Description(BaseModel):
    """A whole strategy file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = ""
    description: str = ""
    extends: Annotated[tuple[str | dict[str, Any], ...], BeforeValidator(_listed)] = ()
    mesh: dict[str, int | str] | None = None
    roles: Roles = Roles()
    pins: dict[str, dict[str, Any]] = {}

    @field_validator("mesh")
    @classmethod
    def _sizes(cls, value: dict[str, int | str] | None) -> dict[str, int | str] | None:
        for axis, size in (value or {}).items():
            named = isinstance(size, str) and re.fullmatch(r"rest|(nodes|per_node)(/[1-9][0-9]*)?", size)
            if not named and not (isinstance(size, int) and (size >= 1 or size == -1)):
                raise ValueError(f"{axis}: {size!r} is no size: write a number, rest, nodes, per_node or per_node/2")
        if sum(size in (-1, "rest") for size in (value or {}).values()) > 1:
            raise ValueError("only one axis can take the rest of the devices")
        return value


def validate(document: Document) -> Description:
    """Check a document against the form.

    Raises:
        InvalidStrategy: with the line and key of everything that is wrong.
    """
    if not isinstance(document.value, dict):
        raise InvalidStrategy(
            f"{document.file}: a strategy is a mapping with keys {', '.join(Description.model_fields)}"
        )
    try:
        return Description.model_validate(document.value)
    except ValidationError as error:
        raise InvalidStrategy("\n".join(complaints(document, error))) from None


def complaints(document: Document, error: ValidationError, prefix: tuple[str | int, ...] = ()) -> list[str]:
    """One line for each thing that pydantic found wrong."""
    lines = []
    for entry in error.errors(include_url=False):
        loc, message = (*prefix, *entry["loc"]), entry["msg"].removeprefix("Value error, ")
        key = str(loc[-1]) if loc else ""
        if entry["type"] == "extra_forbidden":
            known = Roles.model_fields if len(loc) > 1 else Description.model_fields
            message = f"unknown key {key!r}: {_near(key, known)}known: {', '.join(known)}"
        elif loc[:1] == ("roles",) and "is no placement" in message:
            known = {**LeafRule.model_fields, **ActivationRule.model_fields}
            message = _near(key, known, cutoff=0.7) + message
        lines.append(f"{document.where(loc)}: {message}")
    return lines


def _near(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"did you mean {found[0]!r}? " if found else ""


def _refuse_partial(axes: Mapping[str, Choice]) -> None:
    for axis, choice in axes.items():
        if any(isinstance(a, P) for a in choice.alternatives):
            raise ValueError(
                f"{axis}={choice} cannot hold: an argument lies whole or split, never partial, between steps; "
                "write S(d) or B (an activation may be P)"
            )
