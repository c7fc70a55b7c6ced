"""`constrain` pins a placement and otherwise does nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from sbpjax.pinning import constrain
from sbpjax.program.trace import trace
from sbpjax.sbp import B, P, S


def pins(fn, *args):
    return [dict(op.params["pins"]) for _, op, _ in trace(fn, args).graph.walk() if op.name == "sbp_constrain"]


X = jnp.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, jax.vmap, lambda f: jax.vmap(f, 1, 1), jax.checkpoint])
def test_it_is_the_identity(wrap):
    np.testing.assert_array_equal(wrap(lambda x: constrain(x, data=S(0), model=B))(X), X)


def test_it_is_the_identity_for_trees_keys_and_numbers():
    tree = {"x": X, "key": jax.random.key(0), "n": 3}
    out = constrain(tree, model=B)
    assert out["n"] == 3
    assert jnp.all(jax.random.key_data(out["key"]) == jax.random.key_data(tree["key"]))
    assert constrain("untouched") == "untouched"


def test_derivatives_pass_through():
    f = lambda x: jnp.sum(jnp.sin(constrain(x, data=S(1))) ** 2)  # noqa: E731
    g = lambda x: jnp.sum(jnp.sin(x) ** 2)  # noqa: E731
    np.testing.assert_array_equal(jax.grad(f)(X), jax.grad(g)(X))
    np.testing.assert_array_equal(jax.jvp(f, (X,), (X,))[1], jax.jvp(g, (X,), (X,))[1])
    np.testing.assert_array_equal(jax.jacfwd(jax.grad(f))(X[:1]), jax.jacfwd(jax.grad(g))(X[:1]))
    assert len(pins(jax.value_and_grad(f), X)) == 1


def test_the_graph_keeps_it_as_an_op():
    assert pins(lambda x: constrain(x, model=P(), data=S(-1)) + 1, X) == [{"data": S(1), "model": P("sum")}]
    (op,) = trace(lambda x: constrain(x, data=B), (X,)).graph.ops
    assert op.params == {"pins": (("data", B),), "strict": True}


def test_vmap_shifts_dimensions():
    fn = lambda x: constrain(x, data=S(0), model=S(1))  # noqa: E731
    stacked = jnp.ones((5, 3, 4))
    assert pins(jax.vmap(fn), stacked) == [{"data": S(1), "model": S(2)}]
    assert pins(jax.vmap(fn, 1, 1), stacked) == [{"data": S(0), "model": S(2)}]
    assert pins(jax.vmap(fn, 2, 2), stacked) == [{"data": S(0), "model": S(1)}]


def test_it_stays_in_the_body_of_a_scan():
    def fn(x):
        return lax.scan(lambda c, r: (constrain(c + r, data=S(0)), None), x[0], x)[0]

    assert pins(fn, X) == [{"data": S(0)}]


@pytest.mark.parametrize(
    ("axes", "error", "message"),
    [
        ({"data": S(2)}, ValueError, r"data=S\(2\).*rank 2"),
        ({"data": 0}, TypeError, "data=0"),
        ({"data": P("sum"), "model": P("max")}, ValueError, "share one op"),
    ],
)
def test_a_pin_that_makes_no_sense_is_refused(axes, error, message):
    with pytest.raises(error, match=message):
        constrain(X, **axes)


def test_a_pin_is_found_on_the_users_own_line():
    (op,) = trace(lambda x: constrain(x, data=B), (X,)).graph.ops
    assert op.source.location.startswith("test_pinning.py:")
