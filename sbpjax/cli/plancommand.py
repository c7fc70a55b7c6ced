"""`sbpjax plan module:function`: plan a step for any cluster, on a machine that has none of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import sbpjax
from sbpjax.cli.meshes import parse_mesh
from sbpjax.cli.screen import screen
from sbpjax.cli.targets import function_and_arguments
from sbpjax.errors import InvalidOption
from sbpjax.files import why_not_writable
from sbpjax.report import renderable


def plan(
    target: Annotated[str, typer.Argument(help="The step: module:function.", metavar="MODULE:FUNCTION")],
    args: Annotated[
        str | None,
        typer.Option(
            help="module:function that takes nothing and returns the step's arguments, arrays or ShapeDtypeStructs. "
            "Without it, MODULE:FUNCTION itself takes nothing and returns the pair (step, arguments).",
            metavar="MODULE:FUNCTION",
        ),
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="8xh100, 4x8xh100, a YAML file; default: what JAX sees.")] = None,
    mesh: Annotated[str | None, typer.Option(help="data=2,model=4; default: the planner chooses.")] = None,
    strategy: Annotated[str, typer.Option(help="A strategy's name or its YAML file.")] = "auto",
    memory_limit: Annotated[str | None, typer.Option(help="72GiB a device; default: 0.9 of its memory.")] = None,
    donate: Annotated[list[int] | None, typer.Option(help="Position of a donated argument; may be repeated.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the plan to this file.")] = None,
) -> None:
    """Search the layout of a step and print it. Nothing is run; no device of the cluster is needed."""
    shape = parse_mesh(mesh)
    if save is not None and (why := why_not_writable(save)):
        raise InvalidOption(f"--save {save}: cannot be written ({why}); give a file in a folder that exists")
    step, arguments = function_and_arguments(target, args)
    made = sbpjax.plan(
        step,
        *arguments,
        cluster=cluster,
        mesh=shape,
        strategy=strategy,
        memory_limit=memory_limit,
        donate_argnums=donate or None,
    )
    console = screen()
    console.print(renderable(made.report()))
    if save is not None:
        made.save(save)
        console.print(f"\nwritten to {save}")
