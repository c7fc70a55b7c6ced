"""The README does what it says: every block of code in it runs, in order, as a reader would run it.

Blocks whose first line names a file (`# train.py`) are written to that file, or appended to it where the line ends in
`continued`. All other Python blocks of one section share a namespace, as in one script.
"""

import contextlib
import io
import re
import shlex
import sys
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

import sbpjax
from sbpjax.cli import app
from sbpjax.training import recipefile

README = Path(__file__).parents[1] / "README.md"


class Block(NamedTuple):
    section: str
    language: str
    line: int
    text: str

    @property
    def file(self):
        """The file that the first line names, and whether the block continues it."""
        found = re.match(r"# (\w+\.(?:py|yaml))(, continued)?\n", self.text)
        return (found[1], bool(found[2])) if found else (None, False)


def _blocks():
    section, blocks, inside = "", [], None
    for number, line in enumerate(README.read_text(encoding="utf-8").splitlines(keepends=True), 1):
        if line.startswith("```"):
            if inside is None:
                inside = Block(section, line[3:].strip(), number + 1, "")
            else:
                blocks.append(inside)
                inside = None
        elif inside is not None:
            inside = inside._replace(text=inside.text + line)
        elif line.startswith("#"):
            section = line.strip("# \n")
    return blocks


BLOCKS = _blocks()
SECTIONS = list(dict.fromkeys(b.section for b in BLOCKS if b.language == "python" and b.file[0] is None))
COMMANDS = [line[2:] for b in BLOCKS if b.language == "console" for line in b.text.splitlines() if line[:2] == "$ "]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the README's files in it, from which its code is run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for block in BLOCKS:
        name, continued = block.file
        if name:
            with Path(name).open("a" if continued else "w", encoding="utf-8") as out:
                out.write(block.text)
    modules = {path.stem for path in tmp_path.glob("*.py")}
    yield tmp_path
    for name in modules & set(sys.modules):
        del sys.modules[name]


def _run(section):
    """Run a section's blocks; return its namespace and what it printed."""
    namespace = {"__name__": "__main__"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for block in BLOCKS:
            if (block.section, block.language) == (section, "python") and block.file[0] is None:
                code = "\n" * (block.line - 1) + block.text  # so that a traceback shows the README's lines
                exec(compile(code, str(README), "exec"), namespace)
    return namespace, printed.getvalue()


@pytest.mark.parametrize("section", SECTIONS)
def test_the_code_of_each_section_runs(section, folder):
    _, printed = _run(section)
    losses = [float(line) for line in printed.splitlines() if re.fullmatch(r"\d+\.\d+", line)]
    assert losses == sorted(losses, reverse=True)


def test_the_table_has_the_form_that_is_shown(folder):
    _, printed = _run("Look before anything runs")
    (shown,) = (b.text for b in BLOCKS if b.section == "Look before anything runs" and b.language == "text")
    assert shown.splitlines()[0] == printed.splitlines()[0]
    titles = [line for line in shown.splitlines() if line[:1].isalpha()]
    columns = [line.split() for line, below in pairwise(shown.splitlines()) if below[:1] == "─"]
    assert len(titles) >= 4 and len(columns) >= 3
    assert set(titles) <= set(printed.splitlines())
    assert [c for c in columns if c not in [line.split() for line in printed.splitlines()]] == []


def test_files_that_are_shown_can_be_read(folder):
    cluster = sbpjax.Cluster.parse("box.yaml")
    assert cluster.size == 8


def test_plan_commands_run(folder):
    commands = [shlex.split(c)[1:] for c in COMMANDS if c.startswith("sbpjax plan")]
    assert commands
    for arguments in commands:
        result = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert sbpjax.Plan.load("plan.yaml").strategy == "zero1"


def test_train_commands_have_recipes_and_overrides_that_hold(folder):
    commands = [shlex.split(c)[2:] for c in COMMANDS if c.startswith("sbpjax train")]
    assert commands
    for recipe, *overrides in commands:
        recipefile.load(recipe, overrides)


def test_the_two_commands_are_in_the_makefile():
    targets = re.findall(r"^(\w+):", README.with_name("Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = [shlex.split(c, comments=True)[1] for c in COMMANDS if c.startswith("make ")]
    assert named == ["demo", "test"]
    assert set(named) <= set(targets)


def test_links_lead_somewhere():
    text = README.read_text(encoding="utf-8")
    anchors = {"#" + re.sub(r"[^\w -]", "", b.lower()).replace(" ", "-") for b in re.findall(r"^#+ (.*)$", text, re.M)}
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert target in anchors if target.startswith("#") else (README.parent / target).exists()
