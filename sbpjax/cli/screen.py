"""The console that commands write to."""

from __future__ import annotations

import sys

from rich.console import Console

from sbpjax.report.terminal import WIDTH


def screen() -> Console:
    """Standard output: as wide as the terminal; in a file or a pipe, as wide as a report."""
    return Console() if sys.stdout.isatty() else Console(width=WIDTH)
