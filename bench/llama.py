"""A decoder of Llama-3-8B's dimensions and its training step, as a user would write them for one device."""

from __future__ import annotations

from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState


@dataclass(frozen=True)
class Dimensions:
    """Sizes of the model; the defaults are Llama-3-8B's."""

    layers: int = 32
    width: int = 4096
    ff: int = 14336
    heads: int = 32
    kv_heads: int = 8
    vocab: int = 128256
    length: int = 2048
    dtype: str = "bfloat16"


class Attention(nn.Module):
    dims: Dimensions

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        d = self.dims
        head = d.width // d.heads
        dense = lambda features, name: nn.DenseGeneral(features, use_bias=False, dtype=d.dtype, name=name)  # noqa: E731
        q = dense((d.heads, head), "query")(x)
        k = dense((d.kv_heads, head), "key")(x)
        v = dense((d.kv_heads, head), "value")(x)
        q, k = rotary(q), rotary(k)
        q = q.reshape(*q.shape[:2], d.kv_heads, d.heads // d.kv_heads, head)
        scores = jnp.einsum("bqhgd,bkhd->bhgqk", q, k).astype(jnp.float32) / head**0.5
        mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
        weights = jax.nn.softmax(jnp.where(mask, scores, -1e9)).astype(d.dtype)
        out = jnp.einsum("bhgqk,bkhd->bqhgd", weights, v)
        out = out.reshape(*x.shape[:2], d.heads, head)
        return nn.DenseGeneral(d.width, axis=(-2, -1), use_bias=False, dtype=d.dtype, name="out")(out)


def rotary(x: jax.Array) -> jax.Array:
    """Rotary position embedding (Su et al. 2021)."""
    half = x.shape[-1] // 2
    frequencies = 10000.0 ** (-jnp.arange(half) / half)
    angles = jnp.arange(x.shape[1])[:, None] * frequencies
    cos, sin = jnp.cos(angles)[:, None, :].astype(x.dtype), jnp.sin(angles)[:, None, :].astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


class Block(nn.Module):
    dims: Dimensions

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        d = self.dims
        x = x + Attention(d, name="attention")(nn.RMSNorm(dtype=d.dtype, name="norm_attention")(x))
        h = nn.RMSNorm(dtype=d.dtype, name="norm_mlp")(x)
        gate = nn.Dense(d.ff, use_bias=False, dtype=d.dtype, name="gate")(h)
        up = nn.Dense(d.ff, use_bias=False, dtype=d.dtype, name="up")(h)
        return x + nn.Dense(d.width, use_bias=False, dtype=d.dtype, name="down")(nn.silu(gate) * up)


class Decoder(nn.Module):
    dims: Dimensions

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        d = self.dims
        x = nn.Embed(d.vocab, d.width, dtype=d.dtype, name="embed")(tokens)
        block = nn.remat(Block)
        for i in range(d.layers):
            x = block(d, name=f"layers_{i}")(x)
        x = nn.RMSNorm(dtype=d.dtype, name="norm")(x)
        return nn.Dense(d.vocab, use_bias=False, dtype=d.dtype, name="head")(x)


def train_step(state: TrainState, tokens: jax.Array) -> tuple[TrainState, jax.Array]:
    """One Adam step on next-token prediction."""

    def loss_of(params):
        logits = state.apply_fn({"params": params}, tokens[:, :-1]).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradients), loss


def abstract_arguments(dims: Dimensions, batch: int) -> tuple[TrainState, jax.ShapeDtypeStruct]:
    """The step's arguments as shapes: nothing is allocated."""
    model = Decoder(dims)
    tokens = jax.ShapeDtypeStruct((batch, dims.length + 1), jnp.int32)

    def make():
        params = model.init(jax.random.key(0), jnp.zeros((1, dims.length), jnp.int32))["params"]
        return TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3))

    return jax.eval_shape(make), tokens
