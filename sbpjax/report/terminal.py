"""A report as text: for terminals through rich, and as a plain string of one width everywhere."""

from __future__ import annotations

import io
import re

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sbpjax.report.document import Document, Section

WIDTH = 120
"""Columns of `str(plan)`, whatever the terminal: the same plan prints the same text."""

BROKEN = {"path": 56, "where": 44, "why": 40, "dearest at": 40}
"""Columns whose cells are broken into lines of so many characters; the others keep theirs whole."""


def renderable(document: Document) -> RenderableType:
    """The report for a rich console."""
    parts: list[RenderableType] = [Text(document.headline, style="bold")]
    summary = Table.grid(padding=(0, 2))
    for name, value in document.facts:
        summary.add_row(Text(name, style="cyan"), Text(value))
    parts.append(Padding(summary, (0, 0, 0, 2)))
    for section in document.sections:
        parts += ["", _table(section)]
    return Group(*parts)


def text(document: Document, width: int = WIDTH) -> str:
    """The report as plain text of at most `width` columns."""
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as captured:
        console.print(renderable(document))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def broken(cell: str, width: int) -> str:
    """The cell in lines of at most `width` characters, broken after a dot, slash, comma or space where there is one."""
    lines = [""]
    for piece in re.findall(r"[^./, ]*[./, ]*", cell):
        if lines[-1].strip() and len(lines[-1]) + len(piece.rstrip()) > width:
            lines[-1] = lines[-1].rstrip()
            lines.append("  ")
        lines[-1] += piece
    return "\n".join(lines)


def _table(section: Section) -> RenderableType:
    parts: list[RenderableType] = [Text(section.title, style="bold")]
    if section.rows:
        table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=True, show_edge=False)
        for column in section.columns:
            right = column.startswith(">")
            table.add_column(
                column.removeprefix(">"),
                justify="right" if right else "left",
                no_wrap=column not in BROKEN,
                overflow="fold",
            )
        for row in section.rows:
            cells = zip(section.columns, row, strict=True)
            table.add_row(*(Text(broken(cell, BROKEN[c]) if c in BROKEN else cell) for c, cell in cells))
        parts.append(table)
    if section.note:
        parts.append(Text(f" {section.note}"))
    return Group(*parts)
