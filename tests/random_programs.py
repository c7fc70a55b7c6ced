"""Random small programs: a pool of arrays, and ops that each add one made from others; its gradient too."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Op = Callable[[list[Any], random.Random], Any]
OPS: dict[str, Op] = {}
LARGEST = 4096


def op(fn: Op) -> Op:
    OPS[fn.__name__] = fn
    return fn


def random_program(ops: Sequence[str], seed: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function that applies these ops, and arguments for it; equal seeds give equal programs."""
    draw = np.random.default_rng(seed)
    args = tuple(draw.standard_normal(shape) for shape in ((8, 16), (16, 8), (4, 2, 8), (8,)))

    def forward(args):
        rng = random.Random(seed)
        pool = list(args)
        for name in ops:
            made = OPS[name](pool, rng)
            if made is not None and made.size <= LARGEST and made.ndim <= 4:
                pool.append(made)
        return sum(jnp.mean(x**2) for x in pool), pool[-2:]

    def step(*args):
        return jax.value_and_grad(forward, has_aux=True)(args)

    return step, args


def _pick(pool: list[Any], rng: random.Random, rank: int = 0) -> Any:
    """One of the arrays of at least this rank, rather a late one."""
    found = [x for x in pool if x.ndim >= rank]
    return found[-1 - int(rng.random() ** 2 * len(found))]


def _dim(x: Any, rng: random.Random) -> int:
    return rng.randrange(x.ndim)


@op
def unary(pool, rng):
    fn = rng.choice([jnp.tanh, jnp.sin, jax.nn.sigmoid, jnp.abs, lambda x: -x, lambda x: x * 0.5 + 1])
    return fn(_pick(pool, rng))


@op
def binary(pool, rng):
    x = _pick(pool, rng)
    like = [y for y in pool if y.shape == x.shape or y.shape == x.shape[-y.ndim :]]
    return rng.choice([jnp.add, jnp.subtract, jnp.multiply, jnp.maximum])(x, rng.choice(like))


@op
def product(pool, rng):
    x = _pick(pool, rng, 1)
    pairs = [(y, d) for y in pool for d in range(y.ndim) if y.shape[d] == x.shape[-1]]
    y, d = rng.choice(pairs)
    return jnp.tanh(jnp.tensordot(x, y, axes=((x.ndim - 1,), (d,))))


@op
def batched_product(pool, rng):
    x = _pick(pool, rng, 2)
    return jnp.tanh(jnp.einsum("...ij,...kj->...ik", x, x))


@op
def reduction(pool, rng):
    x = _pick(pool, rng, 1)
    fn = rng.choice([jnp.sum, jnp.max, jnp.min, jnp.mean, jnp.prod, jnp.var])
    return jnp.tanh(fn(x, axis=_dim(x, rng), keepdims=rng.random() < 0.5))


@op
def transposition(pool, rng):
    x = _pick(pool, rng, 2)
    return jnp.transpose(x, rng.sample(range(x.ndim), x.ndim))


@op
def reshaping(pool, rng):
    x = _pick(pool, rng, 1)
    d = _dim(x, rng)
    if rng.random() < 0.5 and d + 1 < x.ndim:
        return x.reshape(*x.shape[:d], x.shape[d] * x.shape[d + 1], *x.shape[d + 2 :])
    return x.reshape(*x.shape[:d], 2, x.shape[d] // 2, *x.shape[d + 1 :]) if x.shape[d] % 2 == 0 else None


@op
def joining(pool, rng):
    x = _pick(pool, rng, 1)
    d = _dim(x, rng)
    return rng.choice([jnp.concatenate, jnp.stack])([x, jnp.cos(x)], axis=d)


@op
def cutting(pool, rng):
    x = _pick(pool, rng, 1)
    d = _dim(x, rng)
    start = rng.randrange((x.shape[d] + 1) // 2)
    return lax.slice_in_dim(x, start, x.shape[d], rng.choice([1, 2]), axis=d)


@op
def padding(pool, rng):
    x = _pick(pool, rng, 1)
    widths = [(0, 0)] * x.ndim
    widths[_dim(x, rng)] = (rng.randrange(3), rng.randrange(3))
    return jnp.pad(x, widths, constant_values=0.5)


@op
def softmax(pool, rng):
    x = _pick(pool, rng, 1)
    return jax.nn.softmax(x, axis=_dim(x, rng))


@op
def lookup(pool, rng):
    x = _pick(pool, rng, 1)
    d = _dim(x, rng)
    return jnp.take(x, np.array([rng.randrange(x.shape[d]) for _ in range(8)]), axis=d, mode="clip")


@op
def scattering(pool, rng):
    x = _pick(pool, rng, 2)
    rows = np.array([rng.randrange(x.shape[0] + 2) for _ in range(x.shape[0])])
    return jnp.zeros_like(x).at[rows].add(x, mode="drop")


@op
def running_sum(pool, rng):
    x = _pick(pool, rng, 1)
    return jnp.tanh(jnp.cumsum(x, axis=_dim(x, rng)))


@op
def selection(pool, rng):
    x = _pick(pool, rng, 1)
    d = _dim(x, rng)
    return jnp.where(lax.broadcasted_iota(jnp.int32, x.shape, d) % 3 == 0, x, jnp.sin(x))


@op
def sorting(pool, rng):
    x = _pick(pool, rng, 1)
    return jnp.sort(x, axis=_dim(x, rng))


@op
def loop(pool, rng):
    x = _pick(pool, rng, 2)

    def body(carry, row):
        carry = jnp.tanh(carry + row)
        return carry, carry * 2

    last, rows = lax.scan(body, jnp.zeros(x.shape[1:], x.dtype), x, reverse=rng.random() < 0.5)
    return rows if rng.random() < 0.7 else last


@op
def recomputation(pool, rng):
    return jax.checkpoint(lambda x: jnp.sin(jnp.tanh(x) * 2))(_pick(pool, rng))


@op
def branching(pool, rng):
    x = _pick(pool, rng)
    return lax.cond(jnp.sum(x) > 0, jnp.sin, lambda x: x * 0.5, x)


@op
def noise(pool, rng):
    x = _pick(pool, rng)
    return jnp.where(jax.random.bernoulli(jax.random.key(rng.randrange(9)), 0.5, x.shape), x, 0)
