"""Small functions that between them use what train steps use, each with arguments for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Make = Callable[[np.random.Generator], tuple[Callable[..., Any], tuple[Any, ...]]]
PROGRAMS: dict[str, Make] = {}


def program(make: Make) -> Make:
    PROGRAMS[make.__name__] = make
    return make


def _normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape) / np.sqrt(max(1, shape[0] if len(shape) > 1 else 1))


@program
def mlp_with_momentum(rng):
    def step(state, batch):
        def loss(params):
            h = jax.nn.relu(batch["x"] @ params["w1"] + params["b1"])
            return jnp.mean((h @ params["w2"] - batch["y"]) ** 2)

        value, grads = jax.value_and_grad(loss)(state["params"])
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state["momentum"], grads)
        params = jax.tree.map(lambda p, m: p - 0.1 * m, state["params"], momentum)
        return {"params": params, "momentum": momentum, "step": state["step"] + 1}, {"loss": value}

    params = {"w1": _normal(rng, 16, 32), "b1": _normal(rng, 32), "w2": _normal(rng, 32, 8)}
    state = {"params": params, "momentum": jax.tree.map(np.zeros_like, params), "step": 0}
    return step, (state, {"x": _normal(rng, 8, 16), "y": _normal(rng, 8, 8)})


@program
def attention(rng):
    def step(params, x):
        def loss(params):
            q, k, v = (jnp.einsum("bsd,dhk->bhsk", x, params[name]) for name in "qkv")
            scores = jnp.einsum("bhsk,bhtk->bhst", q, k) / 2.0
            mask = jnp.tril(jnp.ones((x.shape[1],) * 2, bool))
            weights = jax.nn.softmax(jnp.where(mask, scores, -1e30))
            out = jnp.einsum("bhst,bhtk,hkd->bsd", weights, v, params["o"])
            return jnp.sum((x + out) ** 2)

        return jax.grad(loss)(params)

    params = {name: _normal(rng, 16, 4, 4) for name in "qkv"} | {"o": _normal(rng, 4, 4, 16)}
    return step, (params, _normal(rng, 4, 8, 16))


@program
def norms_and_activations(rng):
    def layer_norm(x, scale, bias):
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) * lax.rsqrt(var + 1e-6) * scale + bias

    def step(x, scale, bias):
        def loss(x, scale, bias):
            h = jax.nn.gelu(layer_norm(x, scale, bias))
            h = h * lax.rsqrt(jnp.mean(h**2, -1, keepdims=True) + 1e-6)
            return jnp.sum(jax.nn.silu(h)), h

        return jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True)(x, scale, bias)

    return step, (_normal(rng, 4, 8, 16), _normal(rng, 16), _normal(rng, 16))


@program
def embedding_and_cross_entropy(rng):
    def step(table, ids, labels):
        def loss(table):
            logits = table[ids] @ table.T
            logp = jax.nn.log_softmax(logits)
            return -jnp.mean(jnp.take_along_axis(logp, labels[..., None], axis=-1))

        return jax.value_and_grad(loss)(table)

    return step, (_normal(rng, 16, 8), rng.integers(0, 16, (8, 4)), rng.integers(0, 16, (8, 4)))


@program
def convolution(rng):
    def step(kernel, scale, images):
        def loss(kernel, scale):
            h = lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            mean, var = h.mean((0, 1, 2)), h.var((0, 1, 2))
            h = jax.nn.relu((h - mean) * lax.rsqrt(var + 1e-5) * scale)
            h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
            return jnp.sum(h.mean((1, 2)) ** 2)

        return jax.value_and_grad(loss, argnums=(0, 1))(kernel, scale)

    return step, (_normal(rng, 3, 3, 4, 8), _normal(rng, 8), _normal(rng, 8, 8, 8, 4))


@program
def scanned_layers_with_remat(rng):
    def step(layers, x):
        @jax.checkpoint
        def block(x, layer):
            return x + jnp.tanh(x @ layer["up"]) @ layer["down"]

        def loss(layers):
            out, means = lax.scan(lambda x, layer: (block(x, layer), x.mean()), x, layers)
            return jnp.mean(out**2) + means.sum()

        return jax.value_and_grad(loss)(layers)

    return step, ({"up": _normal(rng, 3, 8, 16), "down": _normal(rng, 3, 16, 8)}, _normal(rng, 8, 8))


@program
def unrolled_layers_with_remat(rng):
    def step(layers, x):
        @jax.checkpoint
        def block(x, layer):
            return x + jnp.tanh(x @ layer[0]) @ layer[1]

        def loss(layers):
            h = x
            for layer in layers:
                h = block(h, layer)
            return jnp.mean(h**2)

        return jax.grad(loss)(layers)

    return step, ([(_normal(rng, 8, 16), _normal(rng, 16, 8)) for _ in range(2)], _normal(rng, 8, 8))


@program
def recurrence(rng):
    def step(w, u, xs, h):
        def loss(w, u):
            def cell(carry, x):
                h, count = carry
                h = jnp.tanh(h @ w + x @ u)
                return (h, count + 1), h

            (last, count), all_h = lax.scan(cell, (h, 0), xs, reverse=True)
            return jnp.sum(last**2) + jnp.mean(all_h) * count

        return jax.value_and_grad(loss, argnums=(0, 1))(w, u)

    return step, (_normal(rng, 8, 8), _normal(rng, 4, 8), _normal(rng, 5, 8, 4), _normal(rng, 8, 8))


@program
def dropout(rng):
    def step(key, x):
        key, used = jax.random.split(key)
        keep = jax.random.bernoulli(used, 0.8, x.shape)
        noise = jax.random.normal(jax.random.fold_in(used, 1), (x.shape[1],))
        return key, jnp.where(keep, x / 0.8, 0) + noise

    return step, (jax.random.key(int(rng.integers(1000))), _normal(rng, 8, 16))


@program
def adam_with_clipping(rng):
    def step(params, mu, nu, count, grads):
        norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(grads)))
        grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / norm), grads)
        count = count + 1
        mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mu, grads)
        nu = jax.tree.map(lambda n, g: 0.99 * n + 0.01 * g**2, nu, grads)
        finite = jnp.isfinite(norm)

        def update(p, m, n):
            new = p - 0.01 * (m / (1 - 0.9**count)) / (jnp.sqrt(n / (1 - 0.99**count)) + 1e-8)
            return jnp.where(finite, new, p)

        return jax.tree.map(update, params, mu, nu), mu, nu, count

    params = {"w": _normal(rng, 8, 16), "b": _normal(rng, 16)}
    zeros = jax.tree.map(np.zeros_like, params)
    return step, (params, zeros, zeros, np.int32(0), jax.tree.map(lambda p: p * 3, params))


@program
def opaque_control_flow(rng):
    def step(x, n):
        doubled = lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 1.5), (0, x))[1]
        branch = lax.cond(x.sum() > 0, jnp.sin, lambda x: x * 2, doubled)
        values, order = lax.top_k(branch, 3)
        return lax.fori_loop(0, 3, lambda i, y: y.at[i].add(1.0), branch), values, order, jnp.sort(x, axis=0)

    return step, (_normal(rng, 8, 8), np.int32(3))


@program
def odd_leaves(rng):
    def step(flag, empty, count, nothing, x):
        taken = jnp.where(flag, x.astype(jnp.int32), count)
        return {"flag": ~flag, "empty": empty * 2, "none": nothing, "count": count + 1, "taken": taken, "one": 1.0}

    arguments = (rng.integers(0, 2, 8) > 0, np.zeros((0, 8)), np.int32(3), None, _normal(rng, 8) * 10)
    return step, arguments


@program
def shapes(rng):
    def step(x, y):
        a = x.reshape(4, 2, 16).transpose(2, 0, 1).reshape(16, 8)
        b = jnp.concatenate([a, y.T], axis=1)[:, 4:]
        c = jnp.pad(b, ((0, 0), (1, 1)))[:, ::2]
        d = lax.dynamic_update_slice(a, y[:2].T, (0, 3))
        e = jnp.cumsum(a, axis=1) + jnp.flip(d, 0) + jnp.arange(8)
        return c, d.max(0), jnp.argmax(e, axis=1), jnp.stack([e.min(), e.prod()]), jnp.squeeze(y[:1], 0)

    return step, (_normal(rng, 8, 16), _normal(rng, 8, 16))


@program
def routing(rng):
    def step(tokens, gate, experts):
        def loss(gate, experts):
            scores = jax.nn.softmax(tokens @ gate)
            chosen = jax.nn.one_hot(jnp.argmax(scores, -1), 4, dtype=tokens.dtype)
            mixed = jnp.einsum("te,td,edf->tf", chosen * scores, tokens, experts)
            return jnp.sum(jax.ops.segment_sum(mixed, jnp.arange(8) // 2, 4) ** 2)

        return jax.grad(loss, argnums=(0, 1))(gate, experts)

    return step, (_normal(rng, 8, 8), _normal(rng, 8, 4), _normal(rng, 4, 8, 8))


@program
def custom_derivatives(rng):
    @jax.custom_vjp
    def clipped(x):
        return x * 2

    clipped.defvjp(lambda x: (x * 2, x), lambda x, ct: (jnp.clip(ct, -1, 1) * x,))

    @jax.custom_jvp
    def safe_log(x):
        return jnp.log(x)

    safe_log.defjvp(lambda primals, tangents: (jnp.log(primals[0]), tangents[0] / (primals[0] + 1)))

    @partial(jax.jit, static_argnums=1)
    def scaled(x, n):
        return x * n

    def step(x):
        return jax.value_and_grad(lambda x: jnp.sum(safe_log(scaled(clipped(x), 3) ** 2 + 1)))(x)

    return step, (_normal(rng, 8, 8),)


@program
def linear_algebra(rng):
    def step(x):
        a = x @ x.mT + 4 * jnp.eye(8)
        lower = jnp.linalg.cholesky(a)
        return lower, lax.linalg.triangular_solve(lower, x, left_side=True, lower=True), jnp.linalg.det(a)

    return step, (_normal(rng, 4, 8, 8),)
