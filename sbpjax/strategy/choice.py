"""What a strategy may say of one mesh axis: `S(0)`, `B`, a word such as `largest`, or a list of alternatives."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sbpjax.sbp import Broadcast, P, S, Sbp, parse_sbp

WORDS: Final = {
    "free": "no restriction; rules and pins further down do not count either",
    "split": "split along any dimension that divides; the search chooses",
    "largest": "split along the largest dimension that divides (equal ones are alternatives)",
    "heads": "split the heads of an attention kernel (D, H, hd) or (H, hd, D)",
    "kernel": "as the kernel of the same layer splits its outputs (for biases)",
    "parameter": "as the parameter that this optimizer state belongs to",
}


@dataclass(frozen=True, slots=True)
class At:
    """`S(d)`, where a negative `d` counts from the last dimension."""

    dim: int

    def __str__(self) -> str:
        return f"S({self.dim})"


Alternative: TypeAlias = At | Broadcast | P | str


@dataclass(frozen=True, slots=True)
class Choice:
    """The alternatives that a strategy allows on one mesh axis."""

    alternatives: tuple[Alternative, ...]

    @classmethod
    def parse(cls, value: Any) -> Choice:
        """Read `"S(0)"`, `"S(-1)"`, `"B"`, `"P(max)"`, a word of `WORDS`, or a list of these.

        Raises:
            ValueError: it is none of these; the message says what is meant, perhaps.
        """
        if isinstance(value, Choice):
            return value
        items = value if isinstance(value, list) else [value]
        if not items:
            raise ValueError("an empty list allows nothing; write `free` to allow everything")
        return cls(tuple(_alternative(item) for item in items))

    @property
    def is_free(self) -> bool:
        """Whether it restricts nothing."""
        return "free" in self.alternatives

    @property
    def is_fixed(self) -> bool:
        """Whether it names placements outright, without a word that looks at the shape."""
        return not any(isinstance(a, str) for a in self.alternatives)

    def plain(self) -> str | list[str]:
        """As it is written in YAML."""
        words = [str(a) for a in self.alternatives]
        return words[0] if len(words) == 1 else words

    def __str__(self) -> str:
        words = self.plain()
        return words if isinstance(words, str) else f"[{', '.join(words)}]"


def _alternative(item: Any) -> Alternative:
    text = str(item).strip()
    if text in WORDS:
        return text
    if found := re.fullmatch(r"S\((-[0-9]+)\)", text):
        return At(int(found[1]))
    try:
        sbp = parse_sbp(text)
    except ValueError:
        near = difflib.get_close_matches(text, WORDS, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(
            f"{text!r} is no placement: {hint}write S(0), S(-1), B, {', '.join(WORDS)}, or a list"
        ) from None
    return At(sbp.dim) if isinstance(sbp, S) else sbp


@dataclass(frozen=True, slots=True)
class Shape:
    """The tensor that a choice is resolved for.

    Attributes:
        sizes: its global shape.
        stacked: how many leading dimensions only stack the layers of a scan; words never split those.
        local: the size of each dimension on one device, as far as other axes are decided.
        divides: whether a dimension can be split by the axis in question.
    """

    sizes: tuple[int, ...]
    stacked: int
    local: tuple[int, ...]
    divides: Callable[[int], bool]

    @property
    def layer_dims(self) -> range:
        """The dimensions of one layer."""
        return range(self.stacked, len(self.sizes))


def resolve(alternative: Alternative, shape: Shape) -> frozenset[Sbp]:
    """The placements that one alternative (no `kernel`, `parameter` or `free`) stands for; they need not divide.

    Dimensions count within one layer of a scanned stack. A dimension outside the rank gives nothing.
    """
    match alternative:
        case At(dim):
            at = dim + (shape.stacked if dim >= 0 else len(shape.sizes))
            return frozenset([S(at)]) if at in shape.layer_dims else frozenset()
        case "split":
            return frozenset(S(d) for d in shape.layer_dims if shape.divides(d))
        case "largest":
            dims = [d for d in shape.layer_dims if shape.divides(d)]
            most = max((shape.local[d] for d in dims), default=0)
            return frozenset(S(d) for d in dims if shape.local[d] == most)
        case "heads":
            return frozenset(S(d) for d in _head_dims(shape))
        case Broadcast() | P():
            return frozenset([alternative])
        case _:
            raise AssertionError(alternative)


def _head_dims(shape: Shape) -> list[int]:
    """(D, H, hd) has its wide side first, (H, hd, D) has it last."""
    if len(shape.layer_dims) < 3:
        return []
    first, _, last = dims = list(shape.layer_dims)[-3:]
    if shape.sizes[first] == shape.sizes[last]:
        return dims[:2]
    return [dims[1] if shape.sizes[first] > shape.sizes[last] else first]
