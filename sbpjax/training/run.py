"""Running a recipe: prepare it, plan it, train it on all devices or on one, and compare the two."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

import sbpjax
from sbpjax.errors import SbpjaxError
from sbpjax.training.data import Text, batches, read_text
from sbpjax.training.recipe import Recipe
from sbpjax.training.step import TrainState, initial_state, make_model, make_optimizer, train_step

Batch = dict[str, NDArray[np.int32]]
Report = Callable[[int, float, float], None]
"""Called after every step with its number (from 0), its loss and its seconds."""

TOLERANCE = 1e-5
"""How far, in nats, the loss may be from that of one device at any step (float32)."""


@dataclass(frozen=True, eq=False)
class Experiment:
    """A recipe made ready: data read, model and optimizer built, nothing compiled.

    Attributes:
        recipe: what it was made from.
        text: what it trains on.
        batch_at: the batch of a step.
        start: the state at step 0 from a key; jittable.
        state, batch: the shapes of a step's arguments.
        parameters: how many numbers are trained.
    """

    recipe: Recipe
    text: Text
    batch_at: Callable[[int], Batch]
    start: Callable[[jax.Array], TrainState]
    state: Any
    batch: Any
    parameters: int


@dataclass(frozen=True, eq=False)
class Curve:
    """What a run measured.

    Attributes:
        losses: nats a token, step by step.
        seconds: wall time of each step; the first one compiles.
    """

    losses: NDArray[np.float64]
    seconds: NDArray[np.float64]

    @property
    def final_loss(self) -> float:
        """The mean of the last tenth: single batches differ."""
        return float(self.losses[-max(1, len(self.losses) // 10) :].mean())

    @property
    def step_seconds(self) -> float:
        """The median step."""
        return float(np.median(self.seconds[1:] if len(self.seconds) > 1 else self.seconds))


@dataclass(frozen=True)
class Agreement:
    """How far two loss curves are apart at most, and where."""

    difference: float
    step: int

    @property
    def holds(self) -> bool:
        """Whether they are the same as far as float32 can tell."""
        return self.difference <= TOLERANCE


def prepare(recipe: Recipe) -> Experiment:
    """Read the data and build the step.

    Raises:
        InvalidRecipe: the data is not there, or too little.
    """
    text = read_text(recipe.data)
    dataset = batches(text, recipe.model.length, recipe.batch, recipe.seed)
    model, optimizer = make_model(recipe.model), make_optimizer(recipe.optimizer, recipe.steps)
    start = partial(initial_state, model, optimizer, recipe.model.length)
    state = jax.eval_shape(start, jax.eval_shape(jax.random.key, 0))
    shape = jax.ShapeDtypeStruct((recipe.batch, recipe.model.length), np.int32)
    parameters = sum(int(np.prod(p.shape)) for p in jax.tree.leaves(state.params))
    batch = {"tokens": shape, "targets": shape}

    def batch_at(step: int) -> Batch:
        found = dataset[step]
        assert found is not None  # nothing is filtered out
        return found

    return Experiment(recipe, text, batch_at, start, state, batch, parameters)


def plan_step(experiment: Experiment, strategy: str | None = None, memory_limit: int | None = None) -> sbpjax.Plan:
    """The plan of a recipe's step; another strategy or limit than the recipe's may be asked for."""
    recipe = experiment.recipe
    return sbpjax.plan(
        train_step,
        experiment.state,
        experiment.batch,
        cluster=recipe.cluster,
        mesh=recipe.mesh,
        strategy=recipe.strategy if strategy is None else strategy,
        memory_limit=recipe.memory_limit if memory_limit is None else memory_limit,
        donate_argnums=0,
    )


def train_planned(experiment: Experiment, planned: sbpjax.Plan, report: Report) -> Curve:
    """Train on the plan's devices."""
    recipe = experiment.recipe
    mesh = planned.make_mesh()
    step = planned.emit(mesh, recipe.emitter)
    state = sbpjax.init(experiment.start, jax.random.key(recipe.seed), plan=planned, mesh=mesh)
    _, places = planned.in_shardings(mesh)
    with _logged(recipe.log.file, report) as logged:
        return _train(step, state, lambda i: jax.device_put(experiment.batch_at(i), places), recipe.steps, logged)


def train_single(experiment: Experiment, report: Report) -> Curve:
    """Train the same step, as it was written, on one device."""
    recipe = experiment.recipe
    with jax.default_device(jax.local_devices()[0]):
        state = jax.jit(experiment.start)(jax.random.key(recipe.seed))
        return _train(jax.jit(train_step, donate_argnums=0), state, experiment.batch_at, recipe.steps, report)


def compare(planned: Curve, single: Curve) -> Agreement:
    """The largest difference between two loss curves; a loss that is not a number agrees with nothing."""
    differences = np.abs(planned.losses - single.losses)
    differences[~np.isfinite(differences)] = np.inf
    step = int(differences.argmax())
    return Agreement(float(differences[step]), step)


def _train(step: Callable[..., Any], state: Any, batch_at: Callable[[int], Any], steps: int, report: Report) -> Curve:
    losses, seconds = np.zeros(steps), np.zeros(steps)
    for i in range(steps):
        began = time.perf_counter()
        state, metrics = step(state, batch_at(i))
        losses[i] = float(metrics["loss"])  # waits for the step, so that its time is its own
        seconds[i] = time.perf_counter() - began
        report(i, float(losses[i]), float(seconds[i]))
    return Curve(losses, seconds)


@contextmanager
def _logged(file: str | None, report: Report) -> Iterator[Report]:
    """Write every step to a file of JSON lines as well."""
    if file is None:
        yield report
        return
    try:
        out = Path(file).open("w", encoding="utf-8")
    except OSError as problem:
        raise SbpjaxError(f"log.file: {file!r} cannot be written ({problem}); give another path, or null") from problem
    with out:

        def both(step: int, loss: float, seconds: float) -> None:
            out.write(json.dumps({"step": step, "loss": loss, "seconds": round(seconds, 6)}) + "\n")
            out.flush()
            report(step, loss, seconds)

        yield both
