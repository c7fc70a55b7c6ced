"""The shipped model: what it computes does not depend on how it is run, and it never looks ahead."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbpjax.training.models import DecoderLM, rotate

SIZES = {"vocab": 256, "layers": 2, "width": 32, "heads": 4, "hidden": 64}


@pytest.fixture(scope="module")
def tokens():
    return jax.random.randint(jax.random.key(1), (2, 16), 0, 256)


@pytest.fixture(scope="module")
def params(tokens):
    return jax.jit(DecoderLM(**SIZES).init)(jax.random.key(0), tokens)["params"]


def shapes(tokens, **options):
    made = jax.eval_shape(DecoderLM(**SIZES, **options).init, jax.random.key(0), tokens)["params"]
    return jax.tree.map(lambda leaf: leaf.shape, made)


def test_a_token_changes_no_logits_before_it(tokens, params):
    other = tokens.at[:, 9].add(1)
    logits = jax.jit(DecoderLM(**SIZES).apply)
    a, b = (logits({"params": params}, t) for t in (tokens, other))
    np.testing.assert_array_equal(a[:, :9], b[:, :9])
    assert np.abs(a[:, 9:] - b[:, 9:]).max() > 1e-3


def test_scan_and_remat_compute_the_same(tokens, params):
    wanted = jax.jit(DecoderLM(**SIZES).apply)({"params": params}, tokens)
    layers = [params[f"layers_{i}"] for i in range(2)]
    stacked = {k: v for k, v in params.items() if not k.startswith("layers_")}
    stacked["layers"] = jax.tree.map(lambda *x: jnp.stack(x), *layers)
    for options in ({"remat": True}, {"scan": True}, {"scan": True, "remat": True}):
        given = stacked if "scan" in options else params
        assert shapes(tokens, **options) == jax.tree.map(jnp.shape, given)
        logits = jax.jit(DecoderLM(**SIZES, **options).apply)({"params": given}, tokens)
        np.testing.assert_allclose(logits, wanted, rtol=1e-5, atol=1e-5)


def test_dropout_acts_in_training_only(tokens, params):
    logits = jax.jit(DecoderLM(**SIZES, dropout=0.5).apply, static_argnames="train")

    def with_key(seed, train):
        return logits({"params": params}, tokens, train=train, rngs={"dropout": jax.random.key(seed)})

    np.testing.assert_array_equal(with_key(0, False), with_key(1, False))
    assert not np.array_equal(with_key(0, True), with_key(1, True))


def test_tied_logits_have_no_matrix_of_their_own(tokens):
    assert "logits" in shapes(tokens)
    assert "logits" not in shapes(tokens, tied=True)


def test_rotation_makes_products_depend_on_distance_alone():
    q, k = (jax.random.normal(jax.random.key(i), (1, 1, 1, 8)) for i in (0, 1))
    rotated_q, rotated_k = (rotate(jnp.repeat(x, 6, axis=1))[0, :, 0] for x in (q, k))
    products = rotated_q @ rotated_k.T
    np.testing.assert_allclose(products[5, 3], products[2, 0], rtol=1e-5)
    assert abs(products[5, 3] - products[5, 4]) > 1e-4
