"""The command line: plans without devices, trains by recipe, and refuses with one panel and status 2."""

import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import sbpjax
from sbpjax.cli import app, devices, meshes, targets, traincommand
from sbpjax.errors import InvalidMesh, NotTraceable, UnknownName
from sbpjax.training import run

STEPS = """
import jax, jax.numpy as jnp

def step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)

def arguments():
    return jax.ShapeDtypeStruct((64, 64), jnp.float32), jax.ShapeDtypeStruct((1024, 64), jnp.float32)

def both():
    return step, arguments()

def one():
    return arguments()[0]

def interrupted():
    raise KeyboardInterrupt

NUMBER = 3
"""

DEMO = [
    "steps=12", "batch=16", "model.layers=1", "model.width=32", "model.heads=2", "model.length=32", "data.limit=300kB",
    "optimizer.learning_rate=0.01",
]  # fmt: skip


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module `mysteps` in the current folder."""
    (tmp_path / "mysteps.py").write_text(STEPS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mysteps", raising=False)
    return tmp_path


def invoke(*words):
    return CliRunner().invoke(app, list(words))


def test_version_names_sbpjax_and_jax():
    said = invoke("version")
    assert said.exit_code == 0
    assert f"sbpjax {sbpjax.__version__}" in said.output and "jax " in said.output


def test_plan_prints_the_table_and_saves_the_plan(module):
    words = ("--cluster", "8xh100", "--mesh", "data=2,model=4", "--strategy", "auto")
    said = invoke("plan", "mysteps:step", "--args", "mysteps:arguments", *words, "--save", "plan.yaml")
    assert said.exit_code == 0, said.output
    assert "step on 8xh100, mesh data=2 × model=4, strategy auto" in said.output
    assert re.search(r"x +float32\[1024, 64\]", said.output)
    assert sbpjax.Plan.load(module / "plan.yaml").mesh_shape == {"data": 2, "model": 4}


def test_plan_takes_a_function_that_returns_step_and_arguments(module):
    said = invoke("plan", "mysteps:both", "--cluster", "4xh100", "--mesh", "data=4")
    assert said.exit_code == 0, said.output
    assert "mesh data=4" in said.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["plan", "mysteps"], "write module:function"),
        (["plan", "nosuch:step"], "there is no module 'nosuch'"),
        (["plan", "mysteps:stepp", "--args", "mysteps:arguments"], "did you mean 'step'"),
        (["plan", "mysteps:NUMBER"], "is int, not a function"),
        (["plan", "mysteps:step"], "give its arguments by --args"),
        (["plan", "mysteps:arguments"], "it must return the pair"),
        (["plan", "mysteps:step", "--args", "mysteps:one"], "step takes (w, x), and 1 argument was given: missing"),
        (["plan", "mysteps:both", "--save", "no/such/folder/plan.yaml"], "--save no/such/folder/plan.yaml: cannot be"),
        (["plan", "mysteps:both", "--mesh", "data:2"], "write data=2,model=4"),
        (["plan", "mysteps:both", "--cluster", "8xh10"], "did you mean 'h100'"),
        (["plan", "mysteps:both", "--cluster", "8xh100", "--memory-limit", "lots"], "write 72GiB"),
        (["plan", "mysteps:both", "--cluster", "8xh100", "--strategy", "fsdb"], "did you mean 'fsdp'"),
        (["train", "char_ml"], "did you mean 'char_lm'"),
        (["train", "char_lm", "stepz=1"], "did you mean 'steps'"),
        (["train", "char_lm", "cluster=64xcpu"], "JAX sees 8"),
        (["train", "char_lm", "data.source=/no/such/text"], "neither a file nor a folder"),
        (["train", "char_lm", "log.file=no/such/folder/log.jsonl"], "log.file: 'no/such/folder/log.jsonl' cannot be"),
    ],
)
def test_what_cannot_be_done_is_one_panel_and_status_2(module, words, says):
    said = invoke(*words)
    assert said.exit_code == 2
    assert says in " ".join(said.output.replace("│", " ").split())
    assert "Traceback" not in said.output


def test_what_cannot_be_written_is_known_before_anything_is_planned(module, monkeypatch):
    for target in (sbpjax, run):
        monkeypatch.setattr(
            target, "plan" if target is sbpjax else "plan_step", lambda *_, **__: pytest.fail("planned")
        )
    (module / "folder").mkdir()
    assert invoke("plan", "mysteps:both", "--save", "folder").exit_code == 2
    assert invoke("train", "char_lm", *DEMO, "log.file=folder").exit_code == 2
    assert sorted(path.name for path in module.iterdir() if path.suffix) == ["mysteps.py"]


def test_an_interrupt_is_one_line_and_status_130(module):
    for words in (["mysteps:interrupted"], ["mysteps:step", "--args", "mysteps:interrupted"]):
        said = invoke("plan", *words)
        assert said.exit_code == 130
        assert said.output == "interrupted\n"


def test_debug_shows_where_an_error_came_from():
    said = invoke("--debug", "train", "char_ml")
    assert isinstance(said.exception, UnknownName)


def test_a_module_that_fails_to_import_something_else_is_not_called_missing(module):
    (module / "broken.py").write_text("import surely_not_installed\n")
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed"):
        targets.find("broken:step")


def test_meshes_are_read_as_written():
    assert meshes.parse_mesh("data=2, model=4") == {"data": 2, "model": 4}
    assert meshes.parse_mesh(None) is None
    for wrong in ("data", "data=0", "=3", "data=2,,", "data=2,data=4", "2=data", "data=²", "data=٨"):
        with pytest.raises(InvalidMesh, match="--mesh"):
            meshes.parse_mesh(wrong)


def test_arguments_may_be_a_value_and_need_not_be_a_tuple(module):
    (module / "mysteps.py").write_text(STEPS + "\nvalues = (1, 2)\n\ndef one():\n    return [1, 2]\n")
    assert targets.function_and_arguments("mysteps:step", "mysteps:values")[1] == (1, 2)
    assert targets.function_and_arguments("mysteps:step", "mysteps:one")[1] == ([1, 2],)
    with pytest.raises(NotTraceable, match="takes none"):
        targets.function_and_arguments("mysteps:step", "mysteps:step")


def test_devices_of_another_kind_are_refused():
    with pytest.raises(InvalidMesh, match="has cuda devices, JAX runs on cpu; set JAX_PLATFORMS=cuda"):
        devices.provide(sbpjax.Cluster.parse("8xh100"))


def test_a_run_that_differs_from_one_device_fails(monkeypatch):
    """The last line must be able to fail."""
    losses = np.array([5.0, 4.0, 3.0, 2.0])
    planned = SimpleNamespace(cluster=SimpleNamespace(name="8xcpu"), mesh_shape={"data": 8})
    monkeypatch.setattr(traincommand, "_show_plan", lambda console, make: planned)
    monkeypatch.setattr(run, "train_single", lambda *_: run.Curve(losses, np.ones(4)))
    monkeypatch.setattr(run, "train_planned", lambda *_: run.Curve(losses + np.array([0, 0, 2e-5, 0]), np.ones(4)))
    said = invoke("train", "char_lm", *DEMO, "steps=4", "tight=null")
    assert said.exit_code == 1, said.output
    assert re.search(r"2\.0e-05 from one device's at step 2 of 4; 1e-05 is allowed", said.output)


def test_the_demo_in_small(tmp_path):
    """In a process of its own, with no devices prepared: plan, second plan, both runs, agreement."""
    env = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_PLATFORMS")}
    words = [sys.executable, "-c", "from sbpjax.cli import app; app()", "train", "char_lm", *DEMO, "log.file=log.jsonl"]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("train_step on 8xcpu, mesh data=8, strategy auto") == 2
    assert "strategy dp: no plan" in done.stdout
    last = done.stdout.strip().splitlines()[-1]
    within = re.search(r"the loss is within (\S+) of one device's at each of 12 steps", last)
    assert within and float(within[1]) <= 1e-5
    losses = [json.loads(line)["loss"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert len(losses) == 12 and losses[-1] < losses[0]
