"""The fingerprint of a program: the same in every process, another for every other program."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from sbpjax.program.fingerprint import stable_text
from sbpjax.program.trace import trace

SCRIPT = """
import jax, jax.numpy as jnp, optax
from flax import nnx
from jax import lax
from sbpjax.program.trace import trace

TABLE = jnp.arange(12.0).reshape(3, 4)

@jax.custom_vjp
def clip(x): return x
clip.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1, 1),))

def fn(model, optimizer, x, key):
    def loss(model):
        h = lax.cond(x.sum() > 0, lambda h: jnp.sin(h), lambda h: h, model(x))
        h = lax.while_loop(lambda h: h.sum() < 3, lambda h: h * 2 + 1, lax.stop_gradient(h)) + clip(h)
        h, _ = lax.scan(jax.checkpoint(lambda c, t: (c + t * jax.random.normal(key, c.shape), None)), h, TABLE)
        return h.sum() + jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct((), jnp.float32), 1.0)
    grads = nnx.grad(loss)(model)
    optimizer.update(model, grads)

model = nnx.Linear(4, 4, rngs=nnx.Rngs(0))
args = model, nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param), jnp.ones((2, 4)), jax.random.key(0)
print(trace(fn, args).fingerprint)
"""


def test_two_processes_agree():
    prints = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "JAX_PLATFORMS": "cpu"}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True, timeout=300
        )
        prints.append(done.stdout.split()[-1])
    assert prints[0] == prints[1]
    assert len(prints[0]) == 64


def base(x, w):
    return jnp.tanh(x @ w)


X, W = jnp.ones((4, 4)), jnp.ones((4, 4))


@pytest.mark.parametrize(
    ("fn", "args", "options"),
    [
        (lambda x, w: jnp.sin(x @ w), (X, W), {}),
        (lambda x, w: jnp.tanh(w @ x), (X, W), {}),
        (lambda x, w: jnp.tanh(x @ w) + 1, (X, W), {}),
        (lambda x, v: jnp.tanh(x @ v), (X, W), {}),
        (base, (X.astype(jnp.bfloat16), W), {}),
        (base, (jnp.ones((8, 4)), W), {}),
        (base, (X, W), {"donate_argnums": 0}),
    ],
    ids=["primitive", "order", "more", "name", "dtype", "shape", "donation"],
)
def test_other_programs_have_other_fingerprints(fn, args, options):
    assert trace(fn, args, **options).fingerprint != trace(base, (X, W)).fingerprint


def test_the_values_of_arrays_do_not_count():
    assert trace(base, (X, W)).fingerprint == trace(base, (2 * X, np.ones((4, 4), np.float32))).fingerprint


def test_whether_a_function_was_called_before_does_not_count():
    model = nnx.Linear(4, 4, rngs=nnx.Rngs(0))
    jitted = nnx.jit(lambda model, x: model(x))
    before = trace(jitted, (model, X)).fingerprint
    jitted(model, X)
    assert trace(jitted, (model, X)).fingerprint == before


def test_parameters_are_written_without_addresses():
    text = stable_text({"f": print, "g": lambda: 0, "set": {"b", "a"}, "dtype": np.dtype("int8"), "o": object()})
    assert "{'a', 'b'}" in text and "int8" in text and "builtins.print" in text
    assert stable_text(object()) == stable_text(object())
    assert stable_text(jax.make_jaxpr(jnp.sin)(1.0)) == stable_text(jax.make_jaxpr(jnp.sin)(1.0))
    assert stable_text(np.arange(3)) != stable_text(np.arange(1, 4))
    assert stable_text(jax.random.key(0)) != stable_text(jax.random.key(1))
