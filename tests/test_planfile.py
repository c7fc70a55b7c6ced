"""The plan file: what is saved comes back, and what was damaged or changed is refused with line and reason."""

import hashlib
import json
import os

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sbpjax import planfile
from sbpjax.cluster import Cluster, Device, Level
from sbpjax.cost.estimate import Collective, Estimate, Indivisible, Unsplit
from sbpjax.errors import InvalidPlanFile
from sbpjax.layout import BodyLayout, Layout, Version
from sbpjax.planfile import Saved
from sbpjax.program.graph import Source
from sbpjax.rules.rule import Signature
from sbpjax.sbp import B, P, Placement, S

AXES = ("data", "model", "expert")


@st.composite
def placements(draw, partial=True):
    rank = draw(st.integers(0, 4))
    op = draw(st.sampled_from(["sum", "max", "min"]))
    options = [B, *([P(op)] if partial else []), *map(S, range(rank))]
    order = draw(st.permutations(AXES))
    return Placement.of(rank, {axis: draw(st.sampled_from(options)) for axis in order}, order)


@st.composite
def bodies(draw, depth=2):
    def few(items, most=5):
        return tuple(draw(st.lists(items, max_size=most)))

    def versions():
        count = draw(st.integers(1, 3))
        return tuple(Version(draw(placements()), draw(st.integers(0, k - 1)) if k else None) for k in range(count))

    signatures = tuple(Signature(few(placements(), 3), few(placements(), 2)) for _ in range(draw(st.integers(0, 4))))
    inner = {i: draw(bodies(depth=depth - 1)) for i in range(len(signatures)) if depth and draw(st.booleans())}
    return BodyLayout(
        versions=tuple(versions() for _ in range(draw(st.integers(0, 5)))),
        signatures=signatures,
        uses=tuple(few(st.integers(0, 12), 3) for _ in signatures),
        results=few(st.integers(0, 12)),
        result_placements=few(placements()),
        bodies=inner,
    )


@st.composite
def layouts(draw):
    mesh = {axis: draw(st.sampled_from([1, 2, 8])) for axis in draw(st.permutations(AXES))}
    options = draw(st.sampled_from([{}, {"xla_gpu_threshold": 31, "xla_flag": True, "xla_word": "on"}]))
    at_rest = st.lists(placements(partial=False), max_size=5)
    return Layout(mesh, tuple(draw(at_rest)), tuple(draw(at_rest)), draw(bodies()), options)


seconds = st.floats(0, 1e3, allow_nan=False)
sources = st.builds(Source, st.text(max_size=8), st.sampled_from(["forward", "update"]), st.just("train.py:3"))
collectives = st.builds(
    Collective,
    kind=st.sampled_from(["all_reduce", "permute"]),
    axes=st.lists(st.sampled_from(AXES), min_size=1, max_size=2).map(tuple),
    bytes=st.integers(0, 2**50),
    count=st.integers(1, 99),
    seconds=seconds,
    exposed_seconds=seconds,
    tensor=st.text(max_size=9),
    change=st.just("S(0) -> B"),
    source=sources,
    scope=st.just("sbp.t3.v1"),
)
estimates = st.builds(
    Estimate,
    step_seconds=seconds,
    bound_seconds=seconds,
    simulated_seconds=st.none() | seconds,
    compute_seconds=seconds,
    peak_bytes=st.integers(0, 2**50),
    limit_bytes=st.integers(0, 2**50),
    memory=st.dictionaries(st.sampled_from(["parameters", "batch"]), st.integers(0, 2**40)),
    collectives=st.lists(collectives, max_size=4).map(tuple),
    unsplit=st.lists(
        st.builds(Unsplit, st.text(max_size=5), st.integers(), seconds, seconds, st.integers(), st.text(), sources),
        max_size=2,
    ).map(tuple),
    indivisible=st.just((Indivisible("state.k", (10, 3), 0, "data", 120, 16),)),
    method=st.text(max_size=20),
    cut=st.booleans(),
)
OWN_CLUSTER = Cluster(
    "attic",
    Device("card", "cuda", 24 << 30, 9.36e11, {"float32": 3.5e13, "bfloat16": 7.1e13}, ("GeForce",)),
    (Level(2, 4e-5, 1.1e9), Level(4, 1e-5, 1.2e10, at_most=4)),
)


def body_values(body):
    """A layout's body as nested tuples, which compare by value."""
    inner = {i: body_values(b) for i, b in body.bodies.items()}
    return body.versions, body.signatures, body.uses, body.results, body.result_placements, inner


def values(saved):
    layout = saved.layout
    return (
        (saved.name, saved.fingerprint, saved.cluster, saved.strategy, saved.estimate, saved.paths, saved.relaxed),
        (list(layout.mesh.items()), layout.inputs, layout.outputs, dict(layout.compiler_options)),
        body_values(layout.body),
    )


@given(layout=layouts(), estimate=estimates)
def test_what_is_saved_comes_back(tmp_path_factory, layout, estimate):
    path = tmp_path_factory.mktemp("plans") / "plan.yaml"
    paths = tuple(f"state.params.layer: {i} é.kernel" for i in range(len(layout.inputs)))
    relaxed = (("state.k", "data", "no dimension of shape (3,) can be cut"),)
    saved = Saved("step", "f00d", OWN_CLUSTER, "mine: odd", layout, estimate, paths, relaxed)
    planfile.save(path, saved)
    assert values(planfile.load(path)) == values(saved)


def small(paths=("state.params.dense.kernel", "batch.x"), **changes):
    inputs = (Placement((("data",), ())), Placement((("data",), ())))
    versions = ((Version(inputs[0]), Version(Placement.broadcast(2), 0)), (Version(inputs[1]),))
    layout = Layout({"data": 8}, inputs, (), BodyLayout(versions, (), (), (0,), (inputs[0],)), {})
    figures = {"step_seconds": 0.25, "bound_seconds": 0.2, "simulated_seconds": None, "compute_seconds": 0.1}
    rest = {"peak_bytes": 10, "limit_bytes": 20, "memory": {"batch": 4}, "method": "exact"}
    estimate = Estimate(**figures, **rest, collectives=(), unsplit=(), indivisible=())
    return Saved("train_step", "f00d", Cluster.parse("8xh100"), "fsdp", layout, estimate, paths, **changes)


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.yaml"
    planfile.save(path, small())
    return path


def test_placements_are_told_by_path(plan):
    assert planfile.load(plan).placements == {
        "state.params.dense.kernel": Placement((("data",), ())),
        "batch.x": Placement((("data",), ())),
    }


def test_a_reader_finds_the_main_things_at_the_top(plan):
    head = plan.read_text().splitlines()[:22]
    for line in ("name: train_step", "strategy: fsdp", "hardware: 8xh100", "  data: 8", "  step_seconds: 0.25"):
        assert line in head
    assert "  state.params.dense.kernel: data=S(0)" in plan.read_text().splitlines()


def test_numpy_figures_are_written_as_plain_numbers(tmp_path):
    saved = small()
    estimate = Estimate(**{**vars(saved.estimate), "step_seconds": np.float64(0.5), "peak_bytes": np.int64(7)})
    planfile.save(tmp_path / "p.yaml", small().__class__(**{**vars(saved), "estimate": estimate}))
    loaded = planfile.load(tmp_path / "p.yaml").estimate
    assert (loaded.step_seconds, loaded.peak_bytes) == (0.5, 7) and type(loaded.peak_bytes) is int


def test_the_file_is_text_that_any_yaml_reader_takes(plan):
    assert yaml.safe_load(plan.read_text())["sbpjax_plan"] == planfile.FORMAT


# Writing is all or nothing


def test_a_failed_write_leaves_the_old_file_and_nothing_else(plan, monkeypatch):
    before = plan.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fail)
            with pytest.raises(InvalidPlanFile, match="disk full"):
                planfile.save(plan, small(relaxed=(("a", "data", "b"),)))
        assert plan.read_bytes() == before
        assert list(plan.parent.iterdir()) == [plan]


def test_saving_again_replaces_the_file(plan):
    planfile.save(plan, small(relaxed=(("a", "data", "b"),)))
    assert planfile.load(plan).relaxed == (("a", "data", "b"),)
    assert list(plan.parent.iterdir()) == [plan]


def test_saving_through_a_link_keeps_the_link(plan):
    link = plan.with_name("link.yaml")
    link.symlink_to(plan)
    planfile.save(link, small(relaxed=(("a", "data", "b"),)))
    assert link.is_symlink()
    assert planfile.load(plan).relaxed == (("a", "data", "b"),)


def test_what_is_no_file_is_written_into_and_never_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        planfile.save(pipe, small())
        assert os.read(reader, 1 << 16).startswith(b"# A plan of sbpjax")
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.parametrize(("name", "reason"), [("no/plan.yaml", "No such file"), ("", "directory"), ("x" * 300, "long")])
def test_a_place_that_cannot_be_written_is_named(tmp_path, name, reason):
    with pytest.raises(InvalidPlanFile, match=f"cannot write the plan file .*{name}.*{reason}"):
        planfile.save(tmp_path / name, small())
    assert list(tmp_path.iterdir()) == []


# Reading refuses what it should


def test_a_file_cut_anywhere_is_refused(plan):
    text = plan.read_text()
    for end in range(0, len(text) - 2, 7):
        plan.write_text(text[:end])
        with pytest.raises(InvalidPlanFile, match=r"plan\.yaml, line \d+: (the file is truncated|not a plan file)"):
            planfile.load(plan)


def test_a_truncated_file_is_told_with_its_last_line(plan):
    lines = plan.read_text().splitlines(keepends=True)
    plan.write_text("".join(lines[:30]))
    with pytest.raises(InvalidPlanFile, match=r"line 30: the file is truncated"):
        planfile.load(plan)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  state.params.dense.kernel: data=S(0)", "  state.params.dense.kernel: data=S(1)"),
        ("  step_seconds: 0.25", "  step_seconds: 0.24"),
        ("  data: 8", "  data: 4"),
        ("strategy: fsdp", "strategy: fsdp2"),
        ("fingerprint: f00d", "fingerprint: f00e"),
        ("peak_bytes: 10", "peak_bytes: 10.0"),
        ("0,1<0", "0,0<0"),
        ("bytes_per_second: 360000000000.0", "bytes_per_second: 370000000000.0"),
    ],
)
def test_an_edit_is_noticed_and_told_with_the_line_of_the_hash(plan, old, new):
    text = plan.read_text()
    assert old in text
    plan.write_text(text.replace(old, new, 1))
    line = text.splitlines().index(next(x for x in text.splitlines() if x.startswith("content_sha256"))) + 1
    with pytest.raises(InvalidPlanFile, match=rf"plan\.yaml, line {line}: the file was edited"):
        planfile.load(plan)


def test_other_line_ends_and_comments_are_no_edit(plan):
    text = plan.read_text().replace("strategy: fsdp", "strategy: fsdp  # the one we like")
    plan.write_bytes(text.replace("\n", "\r\n").encode())
    assert planfile.load(plan).strategy == "fsdp"


def test_another_format_is_refused_with_both_versions(plan):
    plan.write_text(plan.read_text().replace("sbpjax_plan: 1", "sbpjax_plan: 2"))
    with pytest.raises(InvalidPlanFile, match=r"line 2: written in format 2 by sbpjax \S+; this sbpjax .* format 1"):
        planfile.load(plan)


@pytest.mark.parametrize("key", [k for k in planfile.KEYS if k not in ("sbpjax_plan", "content_sha256")])
def test_a_missing_key_is_named(plan, key):
    body = yaml.safe_load(plan.read_text())
    del body[key]
    plan.write_text(yaml.safe_dump(body, sort_keys=False))
    with pytest.raises(InvalidPlanFile, match=f"the key {key} is missing"):
        planfile.load(plan)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1\nb: 2\n", "line 2: not YAML"),
        ("just words\n", "line 1: not a plan file"),
        ("name: fsdp\n", "line 1: not a plan file: the key sbpjax_plan is missing"),
        ("", "not a plan file"),
        ("a: \x00", "not YAML"),
    ],
)
def test_what_is_no_plan_file_is_refused(tmp_path, text, message):
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    with pytest.raises(InvalidPlanFile, match=message):
        planfile.load(path)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path):
    with pytest.raises(InvalidPlanFile, match=r"cannot read the plan file .*nowhere\.yaml"):
        planfile.load(tmp_path / "nowhere.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InvalidPlanFile, match="cannot read"):
        planfile.load(tmp_path / "binary.yaml")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ranks", "2 x"),
        ("placements", {"a": "data=S(9)", "b": "B"}),
        ("layout", {"placements": []}),
        ("estimate", {"step_seconds": 1.0}),
        ("collectives", {"columns": "kind", "rows": "{"}),
        ("relaxed", [["a"]]),
        ("cluster", {"name": "x"}),
        ("mesh", 3),
    ],
)
def test_content_with_a_right_hash_but_of_the_wrong_form_is_told_with_its_line(plan, key, value):
    body = {**yaml.safe_load(plan.read_text()), key: value}
    del body["content_sha256"]
    packed = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    text = yaml.safe_dump({**body, "content_sha256": hashlib.sha256(packed).hexdigest()}, sort_keys=False)
    plan.write_text(text)
    told = "layout" if key == "mesh" else key
    line = next(i for i, x in enumerate(text.splitlines(), 1) if x.startswith(f"{told}:"))
    with pytest.raises(InvalidPlanFile, match=rf"line {line}: {told} is not what sbpjax writes there"):
        planfile.load(plan)
