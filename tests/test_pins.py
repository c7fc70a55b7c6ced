"""Pins hold or are refused with the reason; rules that give way, or do nothing, are listed with the plan."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import sbpjax
from sbpjax import S
from sbpjax.cluster import Cluster
from sbpjax.formulate.options import graph_options
from sbpjax.program.trace import trace
from sbpjax.strategy import Strategy, shipped

MESH = {"data": 8}


def shaped(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def sorts(x):
    with jax.named_scope("block"):
        return jnp.sort(x, axis=0) * 2


def layers(x, w):
    """A product, then a loop whose carry could lie either way, and which stacks three sums."""
    with jax.named_scope("block"):
        return jax.lax.scan(lambda c, _: (jnp.tanh(c), c.sum(1)), x @ w, None, length=3)


def loop_pin(where):
    return {"pins": {"module:block": {"primitive": "scan", "rank": 2, "data": where}}}


def plan(fn, *shapes, **options):
    return sbpjax.plan(fn, *map(shaped, *zip(*shapes, strict=True)), **({"cluster": "8xh100", "mesh": MESH} | options))


def given_way(made):
    return [(r.path, r.axis) for r in made.relaxed]


def test_a_module_pin_that_no_signature_keeps_is_refused_with_what_there_is():
    pins = {"pins": {"module:block": {"primitive": "sort", "data": "S(0)"}}}
    with pytest.raises(sbpjax.InvalidStrategy) as refusal:
        plan(sorts, (64, 64), strategy=pins)
    said = str(refusal.value)
    assert said.startswith("strategy, pins.module:block: data cannot hold for sort at block")
    assert "test_pins.py" in said and "writes float32[64,64]" in said
    assert "S(0) is not among what the op can leave there (B or S(1))" in said and "or write [S(0), B]" in said
    assert plan(sorts, (64, 64), strategy={"pins": {"module:block": {"primitive": "sort", "data": ["S(0)", "B"]}}})


def test_an_activation_rule_that_no_signature_keeps_is_listed_and_others_hold():
    rules = {"roles": {"activation": {"primitive": "sort", "data": "S(0)", "model": "S(1)"}}}
    made = plan(sorts, (64, 64), strategy=rules, mesh={"data": 2, "model": 4})
    assert given_way(made) == [("block: sort", "data")]
    assert "B or S(1)" in made.relaxed[0].reason
    sort = next(i for i, op in enumerate(made.program.graph.ops) if op.name == "sort")
    assert made.layout.body.signatures[sort].results[0].on("model") == S(1)


def test_a_pin_on_what_a_loop_returns_holds():
    made = plan(layers, (64, 64), (64, 64), strategy=loop_pin("S(1)"))
    loop = next(i for i, op in enumerate(made.program.graph.ops) if op.name == "scan")
    assert [p.on("data") for p in made.layout.body.signatures[loop].results] == [S(1), S(1)]
    with pytest.raises(sbpjax.InvalidStrategy, match=r"cannot hold for block: scan: .* shape \(3, 64\)"):
        plan(layers, (64, 64), (64, 64), strategy=loop_pin("S(0)"))


def test_a_pin_on_the_trips_of_a_loop_is_refused():
    def rows(x):
        with jax.named_scope("block"):
            return jax.lax.scan(lambda c, x: (c, x * 2), 0.0, x)[1]

    with pytest.raises(sbpjax.InvalidStrategy, match=r"data cannot hold for scan .*\(B or S\(1\)\)"):
        plan(rows, (64, 64), strategy=loop_pin("S(0)"))


def test_a_sharding_constraint_that_gives_way_is_listed():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))

    def step(x):
        return jax.lax.with_sharding_constraint(x * 2, NamedSharding(mesh, PartitionSpec("data"))) + 1

    made = plan(step, (12, 64), mesh={"data": 8})
    assert given_way(made) == [("top level: sbp_constrain", "data")]
    assert "does not divide shape (12, 64)" in made.relaxed[0].reason
    assert not plan(step, (16, 64)).relaxed


def test_what_gave_way_is_in_the_table_and_the_file(tmp_path):
    made = plan(sorts, (64, 64), strategy={"roles": {"activation": {"primitive": "sort", "data": "S(0)"}}})
    assert "block: sort" in str(made)
    made.save(tmp_path / "plan.yaml")
    assert sbpjax.Plan.load(tmp_path / "plan.yaml").relaxed == made.relaxed


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"data": "S(9)"}, "S(9): nothing that it matches can be placed so"),
        ({"match": "x.kernl", "data": "S(0)"}, "S(0): it matches nothing in sorts"),
        ([{"data": "B"}, {"match": "x", "data": "S(0)"}], "left by pins and rules before it"),
    ],
)
def test_rules_that_decide_nothing_are_listed(rule, why):
    made = Strategy.load({"roles": {"batch": rule}}).restrict(trace(sorts, (shaped(64, 64),)), MESH)
    idle = [r for r in made.relaxed if r.path.startswith("strategy, roles.batch")]
    assert len(idle) == 1 and idle[0].axis == "data" and why in idle[0].reason


def test_activation_rules_that_decide_nothing_are_listed():
    rules = {"roles": {"activation": [{"module": "blok", "data": "S(0)"}, {"primitive": "sort", "data": "S(1)"}]}}
    made = Strategy.load(rules).restrict(trace(sorts, (shaped(64, 64),)), MESH)
    assert [r.path for r in made.relaxed] == ["strategy, roles.activation.0"]


def test_shipped_rules_are_not_called_idle():
    program = trace(sorts, (shaped(64, 64),))
    for name in shipped():
        mesh = Strategy.load(name).mesh(Cluster.parse("2x4xh100")) or MESH
        assert not Strategy.load(name).restrict(program, mesh).relaxed
    extended = Strategy.load({"extends": ["megatron"], "roles": {"batch": {"model": "S(5)"}}})
    relaxed = extended.restrict(program, {"data": 2, "model": 4}).relaxed
    assert {r.path for r in relaxed} == {"x", "strategy, roles.batch.0"}


def test_pins_come_before_rules():
    """A pin on one axis must not fail because a rule took what it needs on another."""
    strategy = {
        "roles": {"activation": {"primitive": "sort", "data": "S(1)"}},
        "pins": {"module:block": {"primitive": "sort", "model": "S(1)"}},
    }
    program = trace(sorts, (shaped(8, 8),))
    mesh = {"data": 4, "model": 4}  # 8 is not divided by both
    options = graph_options(program.graph, mesh, Strategy.load(strategy).restrict(program, mesh))
    sort = next(i for i, op in enumerate(program.graph.ops) if op.name == "sort")
    assert {s.results[0].on("model") for s in options.ops[sort].signatures} == {S(1)}
    assert [(r.path, r.axis) for r in options.relaxed] == [("block: sort", "data")]


def test_pinned_steps_compute_what_one_device_does():
    x, w = np.random.default_rng(0).normal(size=(2, 64, 64)).astype(np.float32)
    step = sbpjax.parallelize(layers, mesh=MESH, strategy=loop_pin("S(1)"))
    for got, expected in zip(step(x, w), layers(x, w), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
