"""A YAML document that remembers on which line each of its keys stands, so that every complaint can name it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sbpjax.errors import InvalidStrategy

Loc = tuple[str | int, ...]
"""Keys and indices from the root of a document to one of its values."""


@dataclass(frozen=True)
class Document:
    """A value and where it was written.

    Attributes:
        file: what to call the source in messages: a path, or `strategy` for a dict given in code.
        value: the value, made of dicts, lists and scalars.
        lines: the line (from 1) of each key and list item; empty for a dict given in code.
        folder: where files named inside the document are looked for.
    """

    file: str
    value: Any
    lines: Mapping[Loc, int] = field(default_factory=dict)
    folder: Path = Path()

    def where(self, loc: Sequence[str | int]) -> str:
        """`fsdp.yaml, line 7, roles.batch.data`: parts of `loc` that the document lacks are passed over."""
        known: Loc = ()
        for part in loc:
            if (*known, part) in self.lines:
                known = (*known, part)
        line = f", line {self.lines[known]}" if known in self.lines else ""
        key = ".".join(map(str, known or loc))
        return f"{self.file}{line}{', ' + key if key else ''}"

    def part(self, loc: Loc) -> Document:
        """The document inside this one at `loc`."""
        value: Any = self.value
        place: Loc = ()
        for key in loc:
            if key == 0 and type(value) not in (list, tuple):
                continue  # one item that stands for a list of one
            value, place = value[key], (*place, key)
        lines = {where[len(place) :]: line for where, line in self.lines.items() if where[: len(place)] == place}
        return Document(self.file, value, lines, self.folder)


def read(path: Path) -> Document:
    """Read a YAML file.

    Raises:
        InvalidStrategy: it cannot be read, is not YAML, or gives a key twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidStrategy(f"cannot read the strategy {path}: {error}") from error
    lines: dict[Loc, int] = {}
    try:
        _note_lines(yaml.compose(text, Loader=yaml.SafeLoader), (), lines, path)
        value = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise InvalidStrategy(f"{path}{line}: not YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise InvalidStrategy(f"{path}: not YAML: {error}") from error
    except RecursionError as error:
        raise InvalidStrategy(f"{path}: nested too deeply; does an alias (`*name`) stand inside of itself?") from error
    return Document(str(path), value, lines, path.parent)


def _note_lines(node: yaml.Node | None, loc: Loc, lines: dict[Loc, int], path: Path) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise InvalidStrategy(f"{path}, line {line}: a key must be text, not a list or a mapping")
            here = (*loc, key.value)
            if here in lines and not key.tag.endswith(":merge"):
                raise InvalidStrategy(f"{path}, line {line}: {key.value!r} stands here a second time")
            lines[here] = line
            _note_lines(value, here, lines, path)
    elif isinstance(node, yaml.SequenceNode):
        for i, item in enumerate(node.value):
            lines[(*loc, i)] = item.start_mark.line + 1
            _note_lines(item, (*loc, i), lines, path)
