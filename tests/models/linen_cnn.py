"""A small convolution net in linen with BatchNorm, pooling and dropout."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct

from models.example import Example, adam_trees, returned

CLASSES, BATCH = 10, 8
OPTIMIZER = optax.adam(1e-3)


class CNN(nn.Module):
    dtype: Any

    @nn.compact
    def __call__(self, images, train):
        x = images
        for features in (8, 16):
            x = nn.Conv(features, (3, 3), use_bias=False, param_dtype=self.dtype)(x)
            x = nn.relu(nn.BatchNorm(use_running_average=not train, param_dtype=self.dtype)(x))
            x = nn.max_pool(x, (2, 2), strides=(2, 2))
        x = x.reshape(x.shape[0], -1)
        x = nn.relu(nn.Dense(32, param_dtype=self.dtype)(x))
        x = nn.Dropout(0.25, deterministic=not train)(x)
        return nn.Dense(CLASSES, param_dtype=self.dtype)(x)


@struct.dataclass
class State:
    params: Any
    batch_stats: Any
    opt_state: Any
    key: jax.Array


def _begin(dtype):
    model = CNN(dtype)

    @jax.jit
    def initial_state():
        weights, dropout = jax.random.split(jax.random.key(0))
        variables = model.init(weights, jnp.zeros((1, 8, 8, 3), dtype), train=False)
        # linen begins with float32 statistics, whatever the parameters are.
        statistics = jax.tree.map(lambda x: x.astype(dtype), variables["batch_stats"])
        return State(variables["params"], statistics, OPTIMIZER.init(variables["params"]), dropout)

    def train_step(state, batch):
        key, dropout = jax.random.split(state.key)

        def loss_of(params):
            logits, changed = model.apply(
                {"params": params, "batch_stats": state.batch_stats},
                batch["images"],
                train=True,
                rngs={"dropout": dropout},
                mutable=["batch_stats"],
            )
            loss = optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"]).mean()
            return loss, changed["batch_stats"]

        (loss, batch_stats), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.params)
        updates, opt_state = OPTIMIZER.update(gradients, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        return State(params, batch_stats, opt_state, key), {"loss": loss}

    return train_step, (initial_state(),)


def _evaluate(dtype):
    model = CNN(dtype)

    def eval_step(state, batch):
        variables = {"params": state.params, "batch_stats": state.batch_stats}
        logits = model.apply(variables, batch["images"], train=False)
        return {"loss": optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"]).mean()}

    return eval_step


def _batch(dtype, number):
    """Noise with a brighter row; which row it is, is the label."""
    rng = np.random.default_rng(number)
    labels = rng.integers(0, 8, BATCH).astype(np.int32)
    images = rng.normal(size=(BATCH, 8, 8, 3))
    images[np.arange(BATCH), labels] += 1
    return {"images": images.astype(dtype), "labels": labels}


example = Example(
    begin=_begin,
    batch=_batch,
    advance=returned,
    trees=lambda state: adam_trees(
        state[0].params,
        state[0].opt_state,
        batch_stats=state[0].batch_stats,
        key=jax.random.key_data(state[0].key),
    ),
    evaluate=_evaluate,
)
