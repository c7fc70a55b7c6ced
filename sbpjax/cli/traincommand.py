"""`sbpjax train recipe`: plan, train, and say how close the run is to one device's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.rule import Rule
from rich.text import Text

import sbpjax
from sbpjax.cli.devices import provide
from sbpjax.cli.screen import screen
from sbpjax.errors import InfeasiblePlan
from sbpjax.report import renderable
from sbpjax.report.units import format_bytes, format_seconds
from sbpjax.training import recipefile, run
from sbpjax.training.recipe import Tight

DIFFERS = 1
"""The exit status when the run is not that of one device."""


def train(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe (char_lm) or the path of a YAML file.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="steps=50 model.layers=4 strategy=fsdp ...", metavar="[KEY=VALUE]...")
    ] = None,
) -> None:
    """Train a model by a recipe, on all devices, with a searched layout."""
    console = screen()
    checked = recipefile.load(recipe, overrides or ())
    if checked.cluster is not None:
        provide(sbpjax.Cluster.parse(checked.cluster))
    experiment = run.prepare(checked)
    console.print(Text(_headline(experiment), "bold"))
    _rule(console, "the plan")
    planned = _show_plan(console, lambda: run.plan_step(experiment))
    if checked.tight is not None:
        _show_tight(console, experiment, checked.tight)
    _rule(console, "the run")
    on_all = f"{planned.cluster.name}, mesh {planned.mesh_shape}"
    curve = _show_run(console, experiment, on_all, lambda report: run.train_planned(experiment, planned, report))
    if checked.reference:
        single = _show_run(console, experiment, "one device", lambda report: run.train_single(experiment, report))
        _conclude(console, run.compare(curve, single), checked.steps)


def _headline(experiment: run.Experiment) -> str:
    recipe, text = experiment.recipe, experiment.text
    return (
        f"{recipe.name}: {experiment.parameters:,} parameters, {recipe.steps} steps of {recipe.batch} × "
        f"{recipe.model.length} bytes, from {format_bytes(len(text.tokens))} of {text.origin} ({text.files} files)"
    )


def _rule(console: Console, title: str) -> None:
    console.print()
    console.print(Rule(title, align="left", style="dim"))


def _show_plan(console: Console, make: Callable[[], sbpjax.Plan]) -> sbpjax.Plan:
    began = time.perf_counter()
    made = make()
    console.print(renderable(made.report()))
    console.print(f"\nplanned in {format_seconds(time.perf_counter() - began)}", style="dim")
    return made


def _show_tight(console: Console, experiment: run.Experiment, tight: Tight) -> None:
    """The plan for a memory limit that a plainer strategy cannot meet: first its refusal, then the plan."""
    limit = int(tight.fraction * run.plan_step(experiment, strategy=tight.below).peak_bytes)
    _rule(console, f"the plan if a device had {format_bytes(limit)}")
    try:
        run.plan_step(experiment, strategy=tight.below, memory_limit=limit)
        console.print(f"strategy {tight.below} would fit, too: lower tight.fraction to see another plan\n")
    except InfeasiblePlan as refusal:
        console.print(Text(f"strategy {tight.below}: {refusal}\n", "yellow"))
    try:
        _show_plan(console, lambda: run.plan_step(experiment, memory_limit=limit))
    except InfeasiblePlan as refusal:  # the run itself has the recipe's own limit
        console.print(Text(f"strategy {experiment.recipe.strategy}: {refusal}", "yellow"))


def _show_run(
    console: Console, experiment: run.Experiment, where: str, go: Callable[[run.Report], run.Curve]
) -> run.Curve:
    """Run, show how it goes, and say what came of it."""
    with _progress(console, where, experiment.recipe.steps) as report:
        curve = go(report)
    console.print(
        f"{where}: loss {curve.losses[0]:.3f} → {curve.final_loss:.3f} nats a byte, "
        f"{format_seconds(curve.step_seconds)} a step ({format_seconds(curve.seconds[0])} the first, which compiles)",
        highlight=False,
        soft_wrap=True,
    )
    return curve


@contextmanager
def _progress(console: Console, where: str, steps: int) -> Iterator[run.Report]:
    """A bar with loss and step time; where nothing can be redrawn, a line at every tenth of the way."""
    if not console.is_terminal:

        def line(step: int, loss: float, seconds: float) -> None:
            if (step + 1) * 10 // steps > step * 10 // steps:
                console.print(f"  step {step + 1}/{steps}  loss {loss:.3f}  {format_seconds(seconds)}", highlight=False)

        yield line
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[measured]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(where, total=steps, measured="compiling")

        def redraw(step: int, loss: float, seconds: float) -> None:
            bar.update(task, completed=step + 1, measured=f"loss {loss:.3f}, {format_seconds(seconds)} a step")

        yield redraw


def _conclude(console: Console, agreement: run.Agreement, steps: int) -> None:
    """The last line: how far the run is from one device's."""
    allowed = f"{run.TOLERANCE:.0e} is allowed"
    if agreement.holds:
        found = f"the loss is within {agreement.difference:.1e} of one device's at each of {steps} steps ({allowed})"
        console.print(Text(found, "green"), soft_wrap=True)
        return
    console.print(
        Text(
            f"the loss is {agreement.difference:.1e} from one device's at step {agreement.step} of {steps}; {allowed}. "
            "If it is off from the first steps on, the emitted program is wrong: please report the recipe and the "
            "plan. If it drifts apart late, training amplifies rounding: lower optimizer.learning_rate or steps.",
            "red",
        ),
        soft_wrap=True,
    )
    raise typer.Exit(DIFFERS)
