"""The train step of a recipe, as a user would write it: for one device, in Flax and optax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax.training import train_state

from sbpjax.training.models import DecoderLM
from sbpjax.training.recipe import Model, Optimizer


class TrainState(train_state.TrainState):
    """Flax's train state, and the key from which every step's dropout follows."""

    dropout_key: jax.Array


def make_model(model: Model) -> DecoderLM:
    """The model that a recipe describes."""
    return DecoderLM(
        vocab=model.vocab,
        layers=model.layers,
        width=model.width,
        heads=model.heads,
        hidden=model.hidden,
        dropout=model.dropout,
        tied=model.tied,
        remat=model.remat,
        scan=model.scan,
    )


def make_optimizer(optimizer: Optimizer, steps: int) -> optax.GradientTransformation:
    """The optimizer that a recipe describes, for a run of so many steps."""
    rate = optax.warmup_cosine_decay_schedule(
        init_value=0.0,
        peak_value=optimizer.learning_rate,
        warmup_steps=round(optimizer.warmup * steps),
        decay_steps=steps,
        end_value=optimizer.final * optimizer.learning_rate,
    )
    adamw = optax.adamw(rate, b1=optimizer.b1, b2=optimizer.b2, eps=optimizer.eps, weight_decay=optimizer.weight_decay)
    if optimizer.clip_norm is None:
        return adamw
    return optax.chain(optax.clip_by_global_norm(optimizer.clip_norm), adamw)


def initial_state(model: DecoderLM, optimizer: optax.GradientTransformation, length: int, key: jax.Array) -> TrainState:
    """Step 0, for sequences of `length` tokens; jittable, so that it can be born in its shards."""
    weights, dropout = jax.random.split(key)
    params = model.init(weights, jnp.zeros((1, length), jnp.int32))["params"]
    return TrainState.create(apply_fn=model.apply, params=params, tx=optimizer, dropout_key=dropout)


def train_step(state: TrainState, batch: dict[str, jax.Array]) -> tuple[TrainState, dict[str, jax.Array]]:
    """One step on `{"tokens": int[batch, time], "targets": int[batch, time]}`; the loss is in nats a token."""

    def loss(params: Any) -> jax.Array:
        key = jax.random.fold_in(state.dropout_key, state.step)
        logits = state.apply_fn({"params": params}, batch["tokens"], train=True, rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"]).mean()

    value, gradients = jax.value_and_grad(loss)(state.params)
    return state.apply_gradients(grads=gradients), {"loss": value}
