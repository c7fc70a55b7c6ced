"""The models that recipes train: ordinary Flax modules, written for one device.

Nothing here knows that the step will be split. That is the point: a user's own module in the same style works the same
way.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp


def rotate(x: jax.Array) -> jax.Array:
    """Turn pairs of features by an angle that grows with the position (RoPE), in `[batch, time, heads, even]`."""
    time, half = x.shape[1], x.shape[-1] // 2
    frequency = 10_000.0 ** (-jnp.arange(half, dtype=x.dtype) / half)
    angle = (jnp.arange(time, dtype=x.dtype)[:, None] * frequency)[:, None, :]
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


class Attention(nn.Module):
    """Causal multi-head self-attention with rotary positions.

    Attributes:
        heads: number of heads; divides the width into an even number of features.
        dropout: rate on the attention weights.
    """

    heads: int
    dropout: float = 0.0

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        """`[batch, time, width] -> [batch, time, width]`."""
        time, width = x.shape[-2:]
        head = width // self.heads
        query = nn.DenseGeneral((self.heads, head), use_bias=False, name="query")(x)
        key = nn.DenseGeneral((self.heads, head), use_bias=False, name="key")(x)
        value = nn.DenseGeneral((self.heads, head), use_bias=False, name="value")(x)
        scores = jnp.einsum("bqhd,bkhd->bhqk", rotate(query), rotate(key)) / jnp.sqrt(head).astype(x.dtype)
        visible = jnp.tril(jnp.ones((time, time), bool))
        scores = jnp.where(visible, scores, jnp.finfo(scores.dtype).min)
        weights = nn.Dropout(self.dropout)(nn.softmax(scores), deterministic=not train)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, value)
        return nn.DenseGeneral(width, axis=(-2, -1), use_bias=False, name="out")(mixed)


class Mlp(nn.Module):
    """Two dense layers with a GELU between.

    Attributes:
        hidden: width of the inner layer.
    """

    hidden: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """`[batch, time, width] -> [batch, time, width]`."""
        h = nn.gelu(nn.Dense(self.hidden, use_bias=False, name="up")(x))
        return nn.Dense(x.shape[-1], use_bias=False, name="down")(h)


class Block(nn.Module):
    """One pre-norm transformer layer.

    Attributes:
        heads: attention heads.
        hidden: width of the MLP's inner layer.
        dropout: rate on attention weights and on both residual branches.
    """

    heads: int
    hidden: int
    dropout: float = 0.0

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        """`[batch, time, width] -> [batch, time, width]`."""
        attended = Attention(self.heads, self.dropout, name="attention")(nn.RMSNorm(name="attention_norm")(x), train)
        x = x + nn.Dropout(self.dropout)(attended, deterministic=not train)
        transformed = Mlp(self.hidden, name="mlp")(nn.RMSNorm(name="mlp_norm")(x))
        return x + nn.Dropout(self.dropout)(transformed, deterministic=not train)


class DecoderLM(nn.Module):
    """A decoder-only language model.

    Attributes:
        vocab: number of tokens.
        layers: number of blocks, named `layers_0`, `layers_1`, ...; with `scan` one stacked `layers`.
        width: size of the residual stream.
        heads: attention heads; divides `width` into an even number of features.
        hidden: width of the MLP's inner layer.
        dropout: rate; active when called with `train=True`, which then needs a `dropout` key.
        tied: whether the logits use the token embedding instead of a matrix of their own.
        remat: whether each block is recomputed in the backward pass instead of keeping its activations.
        scan: whether the blocks run as one `nn.scan`, which compiles once for all layers.
    """

    vocab: int
    layers: int
    width: int
    heads: int
    hidden: int
    dropout: float = 0.0
    tied: bool = False
    remat: bool = False
    scan: bool = False

    @nn.compact
    def __call__(self, tokens: jax.Array, train: bool = False) -> jax.Array:
        """Logits of the next token: int `[batch, time]` -> float `[batch, time, vocab]`."""
        embed = nn.Embed(self.vocab, self.width, name="embed")
        x = nn.Dropout(self.dropout)(embed(tokens), deterministic=not train)
        block = nn.remat(Block, static_argnums=(2,), prevent_cse=not self.scan) if self.remat else Block
        if self.scan:
            stack = nn.scan(
                lambda layer, carry, _: (layer(carry, train), None),
                variable_axes={"params": 0},
                split_rngs={"params": True, "dropout": True},
                length=self.layers,
            )
            x, _ = stack(block(self.heads, self.hidden, self.dropout, name="layers"), x, None)
        else:
            for i in range(self.layers):
                x = block(self.heads, self.hidden, self.dropout, name=f"layers_{i}")(x, train)
        x = nn.RMSNorm(name="norm")(x)
        if self.tied:
            return embed.attend(x)
        small = nn.initializers.normal(0.02)  # the first guess is close to uniform
        return nn.Dense(self.vocab, use_bias=False, kernel_init=small, name="logits")(x)
