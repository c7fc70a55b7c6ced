"""Remat keeps its effect: layers are recomputed, and their activations need not be kept."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh
from random_layouts import whole_layout

import sbpjax.rules  # noqa: F401
from sbpjax.cluster import Cluster, Links
from sbpjax.emit import auto, manual
from sbpjax.program.trace import trace

LAYERS, WIDTH, ROWS = 8, 16, 2048
X = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32)
WEIGHTS = jax.ShapeDtypeStruct((LAYERS, WIDTH, 4 * WIDTH), jnp.float32)


def block(x, w):
    return x + jnp.tanh(jnp.tanh(x @ w) @ w.T)


def scanned(layer):
    def step(weights, x):
        def loss(weights):
            return jnp.mean(lax.scan(lambda x, w: (layer(x, w), None), x, weights)[0] ** 2)

        return jax.grad(loss)(weights)

    return step


def unrolled(layer):
    def step(weights, x):
        def loss(weights):
            h = x
            for w in weights:
                h = layer(h, w)
            return jnp.mean(h**2)

        return jax.grad(loss)(weights)

    return step


def compiled(fn, emitter):
    """Compiled as it is for one device, or emitted for two that both do everything."""
    if emitter is None:
        return jax.jit(fn).lower(WEIGHTS, X).compile()
    program = trace(fn, (WEIGHTS, X))
    shape = {"one": 1, "two": 2}
    links = Links(Cluster.parse("2xh100"), shape)
    mesh = Mesh(np.array(jax.devices()[:2]).reshape(1, 2), ("one", "two"), axis_types=(AxisType.Auto,) * 2)
    return emitter.emit(program, whole_layout(program, shape), links, mesh).lower(WEIGHTS, X).compile()


def temporaries(fn, emitter=None):
    return compiled(fn, emitter).memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("emitter", [manual, auto])
def test_scanned_layers_need_as_little_memory_as_without_us(emitter):
    kept, recomputed = temporaries(scanned(block)), temporaries(scanned(jax.checkpoint(block)))
    assert recomputed < 0.5 * kept
    assert temporaries(scanned(jax.checkpoint(block)), emitter) <= 1.1 * recomputed


def test_unrolled_layers_are_recomputed_also_where_the_compiler_drops_barriers():
    def products(fn, emitter=None):
        return compiled(fn, emitter).as_text().count(" dot(")

    without = products(unrolled(block))
    assert products(unrolled(block), manual) == without
    # The last product of a layer is not needed for its gradient.
    assert products(unrolled(jax.checkpoint(block)), manual) >= without + LAYERS - 1
