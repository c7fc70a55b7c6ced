"""The table of rules: one rule a primitive, shared by equal ops, with errors that say where."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

import sbpjax.rules  # noqa: F401
from sbpjax.errors import InvalidRule
from sbpjax.rules import registry
from sbpjax.rules.notation import build


def applied(name, **params):
    return SimpleNamespace(primitive=SimpleNamespace(name=name), params=params)


@pytest.fixture
def table(monkeypatch):
    monkeypatch.setattr(registry, "_MAKERS", dict(registry._MAKERS))
    monkeypatch.setattr(registry, "_rules", {})


X = jax.ShapeDtypeStruct((4, 8), jnp.float32)


def test_equal_ops_share_one_rule():
    same = [registry.rule_of(applied("transpose", permutation=(1, 0)), [X], [jnp.zeros((8, 4))]) for _ in range(2)]
    assert same[0] is same[1] is not None
    other = registry.rule_of(applied("exp"), [X], [X])
    assert other is not registry.rule_of(applied("exp"), [jnp.zeros((4, 6))], [jnp.zeros((4, 6))])


def test_a_primitive_without_a_rule_has_none():
    assert registry.rule_of(applied("unheard_of"), [X], [X]) is None


def test_a_second_rule_is_refused_unless_it_replaces(table):
    with pytest.raises(InvalidRule, match="'exp' has a rule already"):
        registry.rule("exp")(lambda operands, results: None)
    registry.rule("exp", replace=True)(lambda operands, results: None)
    assert registry.rule_of(applied("exp"), [X], [X]) is None


def test_replacing_a_rule_forgets_what_the_old_one_made(table):
    assert registry.rule_of(applied("exp"), [X], [X]).whole == frozenset()
    registry.rule("exp", replace=True)(lambda o, r: build("i j -> i j", o, r, whole=["i"]))
    assert registry.rule_of(applied("exp"), [X], [X]).whole == {"i"}


def test_an_error_names_the_op_and_where_it_stands(table):
    registry.rule("my_kernel")(lambda operands, results: build("i -> i", operands, results))
    op = applied("my_kernel")
    op.source = "encoder/layer_0 (forward, train.py:41)"
    with pytest.raises(InvalidRule, match=r"my_kernel in encoder/layer_0 \(forward, train.py:41\)"):
        registry.rule_of(op, [X], [X])


def test_parameters_that_cannot_be_hashed_are_allowed(table):
    registry.rule("my_kernel")(lambda operands, results, table: build("i j -> i j", operands, results))
    assert registry.rule_of(applied("my_kernel", table=[1, 2]), [X], [X]) is not None
