"""A report for notebooks: plain tables that take the notebook's own colours."""

from __future__ import annotations

from html import escape

from sbpjax.report.document import Document, Section

_STYLE = """<style scoped>
.sbpjax table { border-collapse: collapse; margin: 0.2em 0 0.8em 0; font-size: 90%; }
.sbpjax th { text-align: left; font-weight: 600; border-bottom: 1px solid currentColor; padding: 2px 10px 2px 0; }
.sbpjax td { text-align: left; padding: 1px 10px 1px 0; font-family: monospace; vertical-align: top; }
.sbpjax .figure { text-align: right; white-space: nowrap; }
.sbpjax summary { font-weight: 600; cursor: pointer; }
</style>"""

FOLDED_FROM = 12
"""A table of so many rows starts folded."""


def html(document: Document) -> str:
    """The report as an HTML fragment, complete in itself."""
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in document.facts)
    parts = [f"<strong>{escape(document.headline)}</strong><table>{rows}</table>"]
    parts += [_section(section) for section in document.sections]
    return f'<div class="sbpjax">{_STYLE}{"".join(parts)}</div>'


def _section(section: Section) -> str:
    figures = [column.startswith(">") for column in section.columns]
    head = _row("th", [column.removeprefix(">") for column in section.columns], figures)
    body = "".join(_row("td", row, figures) for row in section.rows)
    table = f"<table><thead>{head}</thead><tbody>{body}</tbody></table>" if section.rows else ""
    note = f"<p>{escape(section.note)}</p>" if section.note else ""
    opened = " open" if len(section.rows) < FOLDED_FROM else ""
    return f"<details{opened}><summary>{escape(section.title)}</summary>{table}{note}</details>"


def _row(tag: str, cells: list[str] | tuple[str, ...], figures: list[bool]) -> str:
    made = (
        f'<{tag} class="figure">{escape(cell)}</{tag}>' if right else f"<{tag}>{escape(cell)}</{tag}>"
        for cell, right in zip(cells, figures, strict=True)
    )
    return f"<tr>{''.join(made)}</tr>"
