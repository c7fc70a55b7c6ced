"""A decoder-only language model in linen with dropout: its layers unrolled, or scanned and rematerialised."""

from __future__ import annotations

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state

from models.example import Example, adam_trees, returned

VOCAB, LENGTH, BATCH = 64, 16, 8


class TrainState(train_state.TrainState):
    dropout_key: jax.Array


class Block(nn.Module):
    heads: int
    dropout: float
    train: bool
    dtype: Any

    @nn.compact
    def __call__(self, x, mask):
        width = x.shape[-1]
        dense = partial(nn.Dense, param_dtype=self.dtype)
        norm = partial(nn.LayerNorm, param_dtype=self.dtype)
        h = norm(name="attention_norm")(x)
        h = nn.MultiHeadDotProductAttention(
            self.heads,
            dropout_rate=self.dropout,
            deterministic=not self.train,
            param_dtype=self.dtype,
            name="attention",
        )(h, mask=mask)
        x = x + nn.Dropout(self.dropout, deterministic=not self.train)(h)
        h = dense(width, name="down")(nn.gelu(dense(4 * width, name="up")(norm(name="mlp_norm")(x))))
        return x + nn.Dropout(self.dropout, deterministic=not self.train)(h)


class DecoderLM(nn.Module):
    layers: int = 2
    width: int = 32
    heads: int = 8
    dropout: float = 0.1
    scan: bool = False
    remat: bool = False
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, tokens, train):
        x = nn.Embed(VOCAB, self.width, param_dtype=self.dtype, name="embed")(tokens)
        places = self.param("positions", nn.initializers.normal(0.02), (tokens.shape[1], self.width), self.dtype)
        x = nn.Dropout(self.dropout, deterministic=not train)(x + places)
        mask = nn.make_causal_mask(tokens)
        block = nn.remat(Block, prevent_cse=not self.scan) if self.remat else Block
        if self.scan:
            stack = nn.scan(
                lambda layer, carry, mask: (layer(carry, mask), None),
                variable_axes={"params": 0},
                split_rngs={"params": True, "dropout": True},
                in_axes=nn.broadcast,
                length=self.layers,
            )
            x, _ = stack(block(self.heads, self.dropout, train, self.dtype, name="layers"), x, mask)
        else:
            for i in range(self.layers):
                x = block(self.heads, self.dropout, train, self.dtype, name=f"layers_{i}")(x, mask)
        x = nn.LayerNorm(param_dtype=self.dtype, name="norm")(x)
        return nn.Dense(VOCAB, use_bias=False, param_dtype=self.dtype, name="logits")(x)


@partial(jax.jit, static_argnums=(0, 1, 2))
def initial_state(model: DecoderLM, batch_size: int = BATCH, length: int = LENGTH) -> TrainState:
    weights, dropout = jax.random.split(jax.random.key(0))
    params = model.init(weights, jnp.zeros((batch_size, length), jnp.int32), train=False)["params"]
    return TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3), dropout_key=dropout)


def train_step(state, batch):
    def loss_of(params):
        key = jax.random.fold_in(state.dropout_key, state.step)
        logits = state.apply_fn({"params": params}, batch["tokens"], train=True, rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"]).mean()

    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradients), {"loss": loss}


def eval_step(state, batch):
    logits = state.apply_fn({"params": state.params}, batch["tokens"], train=False)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"]).mean()
    return {"loss": loss, "accuracy": jnp.mean(logits.argmax(-1) == batch["targets"])}


def _batch(dtype: Any, number: int) -> dict[str, np.ndarray]:
    """Sequences that count up, each by a step of its own."""
    rng = np.random.default_rng(number)
    first, stride = rng.integers(0, VOCAB, (BATCH, 1)), rng.integers(1, 4, (BATCH, 1))
    tokens = ((first + stride * np.arange(LENGTH + 1)) % VOCAB).astype(np.int32)
    return {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}


def _example(**options: Any) -> Example:
    return Example(
        begin=lambda dtype: (train_step, (initial_state(DecoderLM(dtype=dtype, **options)),)),
        batch=_batch,
        advance=returned,
        trees=lambda state: adam_trees(state[0].params, state[0].opt_state, step=state[0].step),
        evaluate=lambda dtype: eval_step,
    )


unrolled = _example()
scanned = _example(scan=True, remat=True)
