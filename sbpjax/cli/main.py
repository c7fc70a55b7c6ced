"""The `sbpjax` command: its subcommands, and what an error looks like."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.panel import Panel
from rich.text import Text
from typer.core import TyperGroup

from sbpjax.cli import plancommand, traincommand
from sbpjax.errors import SbpjaxError

REFUSED = 2
"""The exit status when something asked for cannot be done."""

INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it: 128 and the signal's number."""


class _Commands(TyperGroup):
    """The subcommands; an error that sbpjax raises on purpose is shown as one panel, Ctrl-C as one line."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SbpjaxError as problem:
            if ctx.params.get("debug"):
                raise
            title = type(problem).__name__
            Console(stderr=True).print(Panel(Text(str(problem)), title=title, title_align="left", border_style="red"))
            sys.exit(REFUSED)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(INTERRUPTED)


app = typer.Typer(
    cls=_Commands,
    help="Write a JAX train step for one device, run it on many.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("plan")(plancommand.plan)
app.command("train")(traincommand.train)


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Write a JAX train step for one device, run it on many."""


@app.command()
def version() -> None:
    """Print the versions of sbpjax and of what it builds on."""
    for package in ("sbpjax", "jax", "jaxlib", "flax", "optax"):
        typer.echo(f"{package} {installed(package)}")
