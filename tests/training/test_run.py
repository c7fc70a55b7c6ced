"""Training a recipe: the loss falls, and curves are compared honestly."""

import json

import jax
import numpy as np
import pytest

from sbpjax.errors import SbpjaxError
from sbpjax.training import run
from sbpjax.training.recipefile import load

TINY = [
    "model.layers=1",
    "model.width=32",
    "model.heads=2",
    "model.length=32",
    "batch=16",
    "data.limit=300kB",
    "tight=null",
]


def curve(*losses):
    return run.Curve(np.array(losses, float), np.ones(len(losses)))


@pytest.fixture(scope="module")
def tiny():
    return run.prepare(load("char_lm", [*TINY, "steps=60", "optimizer.learning_rate=0.01"]))


def test_the_loss_falls_from_that_of_a_guess(tiny):
    seen = []
    trained = run.train_single(tiny, lambda step, loss, seconds: seen.append((step, loss)))
    assert abs(trained.losses[0] - np.log(256)) < 0.6
    assert trained.final_loss < 3.6
    assert seen == list(enumerate(trained.losses))


def test_a_run_is_the_same_again(tiny):
    first, again = (run.train_single(tiny, lambda *_: None) for _ in range(2))
    np.testing.assert_array_equal(first.losses, again.losses)


def test_shapes_are_those_of_the_real_arguments(tiny):
    state = jax.jit(tiny.start)(jax.random.key(0))
    assert jax.tree.structure(state) == jax.tree.structure(tiny.state)
    assert jax.tree.map(np.shape, state.params) == jax.tree.map(lambda s: s.shape, tiny.state.params)
    assert {k: (v.shape, v.dtype) for k, v in tiny.batch_at(3).items()} == {
        k: (v.shape, v.dtype) for k, v in tiny.batch.items()
    }
    assert tiny.parameters == sum(x.size for x in jax.tree.leaves(state.params))


def test_curves_agree_up_to_the_tolerance():
    assert run.compare(curve(2, 1), curve(2, 1 + 0.9e-5)).holds
    apart = run.compare(curve(2, 1, 0), curve(2, 1 + 2e-5, 0))
    assert not apart.holds and apart.step == 1 and apart.difference == pytest.approx(2e-5)


def test_a_loss_that_is_not_a_number_agrees_with_nothing():
    assert not run.compare(curve(1, np.nan), curve(1, np.nan)).holds


def test_the_final_loss_is_the_mean_of_the_last_tenth():
    assert curve(*([9.0] * 18), 1.0, 3.0).final_loss == 2.0


def test_every_step_is_logged_as_a_line(tmp_path):
    lines = []
    with run._logged(str(tmp_path / "log.jsonl"), lambda *step: lines.append(step)) as report:
        report(0, 2.5, 0.1)
        report(1, 2.25, 0.1)
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(entry["step"], entry["loss"]) for entry in logged] == [(0, 2.5), (1, 2.25)]
    assert len(lines) == 2


def test_a_log_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(SbpjaxError, match=r"log\.file"), run._logged(str(tmp_path / "no" / "log"), lambda *_: None):
        pass
