"""A multilayer perceptron in plain JAX: dictionaries and functions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax

from models.example import Example, adam_trees, returned

OPTIMIZER = optax.adam(1e-3)
BATCH, WIDTH, HIDDEN = 16, 16, 64


def _begin(dtype):
    up, down, dropout = jax.random.split(jax.random.key(0), 3)
    params = {
        "up": jax.random.normal(up, (WIDTH, HIDDEN), dtype) / WIDTH**0.5,
        "bias": jnp.zeros(HIDDEN, dtype),
        "down": jax.random.normal(down, (HIDDEN, WIDTH), dtype) / HIDDEN**0.5,
    }
    return train_step, ({"params": params, "opt_state": OPTIMIZER.init(params), "key": dropout},)


def predict(params, x, key=None):
    h = jax.nn.relu(x @ params["up"] + params["bias"])
    if key is not None:
        h = jnp.where(jax.random.bernoulli(key, 0.9, h.shape), h / 0.9, 0)
    return h @ params["down"]


def train_step(state, batch):
    key, dropout = jax.random.split(state["key"])

    def loss_of(params):
        return jnp.mean((predict(params, batch["x"], dropout) - batch["y"]) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(state["params"])
    updates, opt_state = OPTIMIZER.update(gradients, state["opt_state"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": params, "opt_state": opt_state, "key": key}, {"loss": loss}


def eval_step(state, batch):
    return {"loss": jnp.mean((predict(state["params"], batch["x"]) - batch["y"]) ** 2)}


def _batch(dtype, number):
    """The target is the input with its features turned around."""
    x = np.random.default_rng(number).normal(size=(BATCH, WIDTH)).astype(dtype)
    return {"x": x, "y": x[:, ::-1]}


example = Example(
    begin=_begin,
    batch=_batch,
    advance=returned,
    trees=lambda state: adam_trees(state[0]["params"], state[0]["opt_state"], key=jax.random.key_data(state[0]["key"])),
    evaluate=lambda dtype: eval_step,
)
