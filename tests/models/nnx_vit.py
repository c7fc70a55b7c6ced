"""A vision transformer in nnx with dropout, and a BatchNorm before its head; changed in place."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from models.example import Example

CLASSES, BATCH = 10, 8


class Block(nnx.Module):
    def __init__(self, width, heads, dtype, rngs):
        self.norm1 = nnx.LayerNorm(width, param_dtype=dtype, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(
            heads, width, dropout_rate=0.1, decode=False, param_dtype=dtype, rngs=rngs
        )
        self.norm2 = nnx.LayerNorm(width, param_dtype=dtype, rngs=rngs)
        self.up = nnx.Linear(width, 2 * width, param_dtype=dtype, rngs=rngs)
        self.down = nnx.Linear(2 * width, width, param_dtype=dtype, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x):
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.down(nnx.gelu(self.up(self.norm2(x)))))


class ViT(nnx.Module):
    def __init__(self, width, heads, layers, dtype, rngs):
        self.patches = nnx.Conv(3, width, (2, 2), strides=(2, 2), padding="VALID", param_dtype=dtype, rngs=rngs)
        self.positions = nnx.Param(0.02 * rngs.params.normal((16, width), dtype))
        self.blocks = nnx.List([Block(width, heads, dtype, rngs) for _ in range(layers)])
        self.norm = nnx.BatchNorm(width, param_dtype=dtype, rngs=rngs)
        # nnx keeps statistics in float32, whatever the parameters are.
        self.norm.mean, self.norm.var = nnx.BatchStat(jnp.zeros(width, dtype)), nnx.BatchStat(jnp.ones(width, dtype))
        self.head = nnx.Linear(width, CLASSES, param_dtype=dtype, rngs=rngs)

    def __call__(self, images):
        x = self.patches(images)
        x = x.reshape(x.shape[0], -1, x.shape[-1]) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x.mean(axis=1)))


def loss_of(model, batch):
    return optax.softmax_cross_entropy_with_integer_labels(model(batch["images"]), batch["labels"]).mean()


def train_step(model, optimizer, batch):
    loss, gradients = nnx.value_and_grad(loss_of)(model, batch)
    optimizer.update(model, gradients)
    return loss


def eval_step(model, batch):
    return {"loss": loss_of(model, batch)}


def _begin(dtype):
    @nnx.jit
    def make():
        model = ViT(width=32, heads=8, layers=2, dtype=dtype, rngs=nnx.Rngs(params=0, dropout=1))
        model.train()
        return model, nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)

    return train_step, make()


def _batch(dtype, number):
    """Noise with a brighter column; which column it is, is the label."""
    rng = np.random.default_rng(number)
    labels = rng.integers(0, 8, BATCH).astype(np.int32)
    images = rng.normal(size=(BATCH, 8, 8, 3))
    images[np.arange(BATCH), :, labels] += 1
    return {"images": images.astype(dtype), "labels": labels}


def _in_place(step, state, batch):
    return state, step(*state, batch)


def _trees(state):
    model, optimizer = state
    _, params, counts, statistics = nnx.split(model, nnx.Param, nnx.RngCount, nnx.BatchStat, ...)[:4]
    pure = nnx.to_pure_dict(nnx.state(optimizer))
    adam = pure["opt_state"][0]
    return {
        "params": nnx.to_pure_dict(params),
        "first_moment": adam["mu"],
        "second_moment": adam["nu"],
        "batch_stats": nnx.to_pure_dict(statistics),
        "counts": [adam["count"], pure["step"], nnx.to_pure_dict(counts)],
    }


example = Example(begin=_begin, batch=_batch, advance=_in_place, trees=_trees, evaluate=lambda dtype: eval_step)
