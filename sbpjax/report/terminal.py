"""A plan's report as text: for terminals through rich, and as a plain string of one width everywhere."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sbpjax.report.tables import Section, facts, headline, sections

if TYPE_CHECKING:
    from sbpjax.planning import Plan

WIDTH = 120
"""Columns of `str(plan)`, whatever the terminal: the same plan prints the same text."""


def renderable(plan: Plan) -> RenderableType:
    """The report for a rich console."""
    parts: list[RenderableType] = [Text(headline(plan), style="bold")]
    summary = Table.grid(padding=(0, 2))
    for name, value in facts(plan):
        summary.add_row(Text(name, style="cyan"), Text(value))
    parts.append(Padding(summary, (0, 0, 0, 2)))
    for section in sections(plan):
        parts += ["", _table(section)]
    return Group(*parts)


def text(plan: Plan, width: int = WIDTH) -> str:
    """The report as plain text of at most `width` columns."""
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as captured:
        console.print(renderable(plan))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _table(section: Section) -> RenderableType:
    parts: list[RenderableType] = [Text(section.title, style="bold")]
    if section.rows:
        table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=True, show_edge=False)
        for column in section.columns:
            right = column.startswith(">")
            table.add_column(
                column.removeprefix(">"),
                justify="right" if right else "left",
                no_wrap=right,
                overflow="fold",
            )
        for row in section.rows:
            table.add_row(*(Text(cell) for cell in row))
        parts.append(table)
    if section.note:
        parts.append(Text(f" {section.note}"))
    return Group(*parts)
