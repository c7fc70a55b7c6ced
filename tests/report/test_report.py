"""A plan's report says what the plan knows: every figure is there, at any width, as text and as HTML."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from sbpjax import report
from sbpjax.cost.estimate import Collective, Estimate, Indivisible, Unsplit
from sbpjax.layout import BodyLayout, Version
from sbpjax.program.graph import Graph, Op, Source, Tensor
from sbpjax.sbp import Placement
from sbpjax.strategy import Relaxed

MESH = {"data": 2, "model": 4, "expert": 1}
SPLIT, WHOLE = Placement((("model",), ())), Placement.broadcast(2)


def tensor(*shape):
    return Tensor(jax.core.ShapedArray(shape, np.dtype("float32")), "t")


def collective(layer, phase, seconds=1e-3):
    return Collective(
        "all_reduce", ("data", "model"), 4096, 2, seconds, seconds / 2, "t", "data=P(sum) model=P(sum) -> B",
        Source(f"layers_{layer}/up", phase), "sbp.t1.v1",
    )  # fmt: skip


def make(**changes):
    paths = [f"params.layers_{i}.{w}" for i in range(3) for w in ("up", "down")] + ["batch"]
    placements = dict.fromkeys(paths, SPLIT) | {"batch": WHOLE, "params.layers_1.up": WHOLE}
    graph = Graph((*(tensor(8, 16) for _ in paths), tensor(8, 16)), (
        Op(jax.lax.neg_p, {}, (0,), (len(paths),), Source()),
    ), tuple(range(len(paths))), ())  # fmt: skip
    body = BodyLayout(tuple((Version(p),) for p in (*placements.values(), SPLIT)), (), (), (), ())
    estimate = Estimate(
        step_seconds=0.011, bound_seconds=0.010, simulated_seconds=None, compute_seconds=0.009, peak_bytes=3 * 2**20,
        limit_bytes=4 * 2**20, memory={"parameters": 2 * 2**20, "activations": 2**20, "other": 0},
        collectives=tuple(collective(i, phase) for i in range(3) for phase in ("forward", "backward")),
        unsplit=(Unsplit("sort", 2, 1e-3, 3e9, 64, "no rule [for] this", Source("head", "forward", "net.py:7")),),
        indivisible=(Indivisible("params.odd", (7, 3), 0, "model", 1024, 8),), method="exact", cut=False,
    )  # fmt: skip
    known = {
        "name": "train_step", "mesh_shape": MESH, "cluster": SimpleNamespace(name="8xcpu"), "strategy": "auto",
        "estimate": estimate, "gap": 0.1, "placements": placements, "program": SimpleNamespace(graph=graph),
        "layout": SimpleNamespace(body=body),
        "relaxed": [Relaxed(f"params.layers_{i}.norm", "model", "4 does not divide 6") for i in (0, 1)],
    }  # fmt: skip
    figures = {key: value for key, value in changes.items() if hasattr(estimate, key)}
    known["estimate"] = replace(estimate, **figures)
    return report.document(SimpleNamespace(**{key: changes.get(key, value) for key, value in known.items()}))


FACTS = {
    "mesh": "train_step on 8xcpu, mesh data=2 × model=4 × expert=1, strategy auto",
    "step": "11.0 ms   compute 9.00 ms, communication not hidden 6.00 ms",
    "bound and gap": "10.0 ms   gap 10 %, exact",
    "memory": "3.00 MiB of 4.00 MiB a device (75 %)",
}
ROWS = {
    "memory by holder": r"parameters +2\.00 MiB +67 %",
    "equal arguments in one row": r"params\.layers_\{0\.\.2\}\.down +3 × float32\[8, 16\] +B +S\(0\) +384 B",
    "the one that differs apart": r"params\.layers_1\.up +float32\[8, 16\] +B +B +512 B",
    "intermediates": r"B +S\(0\) +1 +100 %",
    "collectives": r"all-reduce +data model +P\(sum\) → B +layers_\*/up \(forward\) +6 +24\.0 KiB +6\.00 ms +3\.00 ms",
    "their total": r"total +12 +48\.0 KiB +12\.0 ms +6\.00 ms",
    "ops that are not split": r"sort +2 +1\.00 ms +3\.00 GFLOP +no rule \[for\] this +head \(forward, net\.py:7\)",
    "what does not divide": r"params\.odd +\[7, 3\] +0 +model +1\.00 KiB +7 -> 8",
    "rules that gave way": r"params\.layers_\{0,1\}\.norm +model +4 does not divide 6",
}  # fmt: skip


@pytest.fixture(scope="module")
def said():
    return report.text(make())


@pytest.mark.parametrize("fact", FACTS)
def test_the_report_says_the_fact(said, fact):
    assert FACTS[fact] in said


@pytest.mark.parametrize("row", ROWS)
def test_the_report_has_the_row(said, row):
    assert re.search(ROWS[row], said), said


def test_axes_of_size_one_are_no_columns(said):
    assert not re.search(r"data +model +expert", said)


def test_a_plain_report_has_no_escape_codes_and_keeps_its_width(said):
    assert "\x1b" not in said
    assert max(map(len, said.splitlines())) <= 120
    assert said == report.text(make())


@pytest.mark.parametrize("width", [60, 90, 200])
def test_a_report_fits_the_width_that_it_is_given(width):
    assert max(map(len, report.text(make(), width).splitlines())) <= width


def test_long_paths_are_broken_between_their_parts():
    path = ".".join(["transformer"] * 8)
    said = report.text(make(placements={path: SPLIT}))
    broken = [line.split()[0] for line in said.splitlines() if "transformer" in line]
    assert len(broken) > 1 and "".join(broken) == path
    assert all(line.endswith(".") for line in broken[:-1])


def test_a_plan_without_its_function_still_shows_placements():
    said = report.text(make(program=None))
    assert re.search(r"params\.layers_\{0\.\.2\}\.down +B +S\(0\)", said)
    assert "bound to its function" in said and "Intermediates" not in said


def test_a_cut_search_and_a_simulation_are_told():
    said = report.text(make(cut=True, simulated_seconds=0.0105))
    assert "cut short by the clock" in said and "simulated  10.5 ms" in said


def test_a_plan_that_is_silent_says_so():
    said = report.text(make(collectives=(), unsplit=(), indivisible=(), relaxed=()))
    assert "Nothing is communicated." in said
    assert "Not split" not in said and "gave way" not in said


def test_a_long_table_sums_up_its_rest():
    many = tuple(
        Collective(
            "all_reduce", ("data",), 1024, 1, 1e-3 * (i + 1), 0.0, "t", f"data=P(sum) -> data=S({i})", Source(), "s"
        )
        for i in range(40)
    )
    said = report.text(make(collectives=many))
    assert "16 smaller rows" in said
    assert re.search(r"total +40 +40\.0 KiB +820 ms", said)


class Checked(HTMLParser):
    """Counts tags, and refuses unbalanced ones."""

    def __init__(self):
        super().__init__()
        self.open, self.cells = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.cells.append(data)


def test_html_is_balanced_and_says_the_same():
    page = Checked()
    page.feed(report.html(make(name="<step>")))
    assert page.open == []
    assert {"params.layers_{0..2}.down", "P(sum) → B", "384 B", "head (forward, net.py:7)"} <= set(page.cells)
    assert "<step>" not in report.html(make(name="<step>"))
