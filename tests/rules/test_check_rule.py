"""The check of rules refuses false claims of every kind."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sbpjax.rules  # noqa: F401
from sbpjax.errors import InvalidRule
from sbpjax.rules.check import check_rule, decompose, recombine
from sbpjax.rules.notation import build
from sbpjax.rules.rule import Passes
from sbpjax.sbp import COMBINE_OPS, Placement

X = np.arange(32, dtype=np.float32).reshape(4, 8) / 7
MESH = {"x": 2, "y": 2}


def equation(fn, *args):
    (found,) = jax.make_jaxpr(fn)(*args).eqns
    return found


def claim(fn, notation, *operands, **options):
    results = [jax.eval_shape(fn, *operands)]
    return check_rule(equation(fn, *operands), operands, MESH, rule=build(notation, operands, results, **options))


def test_a_true_rule_passes_and_its_signatures_are_counted():
    assert check_rule(equation(jax.lax.exp, X), [X], {"x": 2}) == 5


@pytest.mark.parametrize(
    ("fn", "notation", "options", "message"),
    [
        (lambda x: jax.lax.rev(x, (0,)), "i j -> i j", {}, "is off by"),
        (lambda x: jax.lax.cumsum(x, 1), "i j -> i j", {}, "is off by"),
        (jax.lax.exp, "i j -> i j", {"passes": [Passes((0,))]}, "is off by"),
        (jax.lax.neg, "i j -> i j", {"passes": [Passes((0,), ("max",))]}, "is off by"),
        (lambda x: jax.lax.reduce_max(x, (1,)), "i k -> i", {}, "is off by"),
        (lambda x: jax.lax.reduce_sum(x, (1,)), "i k -> i", {"reductions": {"k": "max"}}, "is off by"),
        (lambda x: jax.lax.transpose(x, (1, 0)), "i j -> _ _", {}, "part is"),
        (lambda x: jax.lax.exp(x), "i j -> i j", {"local": lambda s, x: s.bind(x).astype(jnp.float16)}, "float16"),
        (
            lambda x: jax.lax.exp(x),
            "i j -> i j",
            {"local": lambda s, x: s.bind(x) + s.axis_index(("y",))},
            "differ",
        ),
    ],
    ids=["rev", "cumsum", "exp sum", "neg max", "max as sum", "sum as max", "shape", "dtype", "unequal"],
)
def test_a_false_claim_is_refused_by_name(fn, notation, options, message):
    with pytest.raises(InvalidRule, match=message) as caught:
        claim(fn, notation, X, **options)
    assert "claims that" in str(caught.value)


def test_an_op_without_a_rule_is_refused():
    with pytest.raises(InvalidRule, match="has no rule"):
        check_rule(equation(lambda *x: jax.lax.optimization_barrier(x), X, X), [X, X], MESH)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint32, jnp.bfloat16])
@pytest.mark.parametrize("op", COMBINE_OPS)
def test_summands_combine_to_what_was_decomposed(op, dtype):
    x = np.random.default_rng(0).integers(0, 100, (4, 8)).astype(dtype)
    placement = Placement(((), ()), ("x", "y"), op)
    parts = decompose(x, placement, MESH, np.random.default_rng(1))
    assert len(parts) == 4 and not any(np.array_equal(part, x) for part in parts)
    devices = [{"x": i, "y": j} for i in range(2) for j in range(2)]
    assert np.array_equal(recombine(parts, placement, devices, MESH, x.shape, x.dtype), x.astype(np.float64))
