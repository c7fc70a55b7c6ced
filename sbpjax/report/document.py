"""A report as titles, rows and notes. What it says is decided where it is made, how it looks where it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_ROWS = 24
"""A longer table ends in a row that sums up the rest."""


@dataclass(frozen=True)
class Section:
    """One part of a report.

    Attributes:
        title: its heading.
        columns: headings of the columns; those that start with `>` hold figures, set to the right.
        rows: cells, row by row.
        note: a line below.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Document:
    """A whole report.

    Attributes:
        headline: what it is about.
        facts: the figures that matter most, as (name, value).
        sections: tables that have something to say.
    """

    headline: str
    facts: Sequence[tuple[str, str]]
    sections: Sequence[Section]


def cut(rows: Sequence[tuple[str, ...]], most: int = MOST_ROWS) -> tuple[tuple[str, ...], ...]:
    """The first rows; if there are more than `most`, the last says how many are left out."""
    if len(rows) <= most:
        return tuple(rows)
    rest = (f"{len(rows) - most + 1} more", *("" for _ in rows[0][1:]))
    return (*rows[: most - 1], rest)
