"""Random bits and keys: the numbers that one device would draw, each device drawing its own part.

Threefry (with `jax_threefry_partitionable`, the default) makes each word from the key and the word's position in the
whole result, so a shard counts from its own offset. Other generators run through a state: the whole is drawn, and a
shard's part cut out of it; they also mix the keys of a batch, which therefore stays whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax
import numpy as np
from jax import lax
from jax.extend.random import threefry2x32_p

from sbpjax.rules.notation import build, names, text
from sbpjax.rules.registry import rule
from sbpjax.rules.rule import Rule, Shard

THREEFRY: Final = "key<fry>"
_KEY_BY_KEY: Final = (THREEFRY, "key<rbg>")
"""Key types whose keys are split and folded each by itself, whatever batch they come in."""

_THREEFRY_FLOPS: Final = 120.0
"""Integer operations for a word: 20 rounds of add, rotate (three) and xor, and the key's injections."""


@rule("random_bits")
def random_bits(operands: Any, results: Any, *, shape: Any, **_: Any) -> Rule:
    """Keys by keys; the dimensions drawn are free."""
    (keys,), threefry = operands, operands[0].dtype.name == THREEFRY
    batch, drawn = names(keys.ndim, "k"), names(len(shape), "d")
    return build(
        text([batch if threefry else ["_"] * keys.ndim], [[*batch, *drawn]]),
        operands,
        results,
        flops=_THREEFRY_FLOPS * float(np.prod(results[0].shape)),
        local=_local_threefry if threefry else _local_cut,
        fusible=threefry,
    )


def _local_threefry(shard: Shard, keys: Any) -> Any:
    if shard.results[0].is_broadcast:
        return shard.bind(keys)
    drawn = len(shard.params["shape"])
    if not jax.config.jax_threefry_partitionable:  # pyright: ignore[reportAttributeAccessIssue]
        return _cut(shard, shard.bind(keys), first=keys.ndim)
    shape, bit_width = shard.local_result(), shard.params["bit_width"]
    offsets = [shard.result_offset(0, d) for d in range(keys.ndim, keys.ndim + drawn)]
    high, low = counts(shard.params["shape"], shape[keys.ndim :], offsets)
    words = jax.random.key_data(keys)
    key = [lax.index_in_dim(words, i, words.ndim - 1, keepdims=False) for i in range(2)]
    over_drawn, over_keys = tuple(range(keys.ndim, len(shape))), tuple(range(keys.ndim))
    bits = threefry2x32_p.bind(
        *(lax.broadcast_in_dim(k, shape, over_keys) for k in key),
        *(lax.broadcast_in_dim(count, shape, over_drawn) for count in (high, low)),
    )
    dtype = np.dtype(f"uint{bit_width}")
    if bit_width == 64:
        first, second = (lax.convert_element_type(word, dtype) for word in bits)
        return lax.bitwise_or(lax.shift_left(first, dtype.type(32)), second)
    return lax.convert_element_type(lax.bitwise_xor(*bits), dtype)


def counts(shape: Sequence[int], part: Sequence[int], offsets: Sequence[Any]) -> tuple[Any, Any]:
    """The row-major positions, in a tensor of `shape`, of the elements of a part: high and low words, uint32."""
    low = lax.full(tuple(part), 0, np.uint32)
    high = low
    small = int(np.prod(shape, dtype=object)) <= 2**32
    stride = 1
    for d in reversed(range(len(shape))):
        offset = lax.convert_element_type(offsets[d], np.uint32)
        along = lax.broadcasted_iota(np.uint32, tuple(part), d) + offset
        if small:
            low = low + along * np.uint32(stride % 2**32)
        else:
            more_high, more_low = _times(along, stride)
            total = low + more_low
            carry = lax.convert_element_type(lax.lt(total, low), np.uint32)
            low, high = total, high + more_high + carry
        stride *= shape[d]
    return high, low


def _times(x: Any, factor: int) -> tuple[Any, Any]:
    """A 32-bit number times a 64-bit one, modulo 2**64, in 16-bit digits: there may be no 64-bit integers."""
    sixteen, mask = np.uint32(16), np.uint32(0xFFFF)
    x0, x1 = lax.bitwise_and(x, mask), lax.shift_right_logical(x, lax.full_like(x, sixteen))
    f0, f1 = np.uint32(factor & 0xFFFF), np.uint32((factor >> 16) & 0xFFFF)
    upper = np.uint32((factor >> 32) & 0xFFFFFFFF)

    def halves(y: Any) -> tuple[Any, Any]:
        return lax.shift_right_logical(y, lax.full_like(y, sixteen)), lax.bitwise_and(y, mask)

    (low_high, low_low), (a_high, a_low), (b_high, b_low) = halves(x0 * f0), halves(x1 * f0), halves(x0 * f1)
    middle_high, middle_low = halves(low_high + a_low + b_low)
    low = lax.bitwise_or(lax.shift_left(middle_low, lax.full_like(x, sixteen)), low_low)
    return x1 * f1 + a_high + b_high + middle_high + x * upper, low


def _local_cut(shard: Shard, keys: Any) -> Any:
    return _cut(shard, shard.bind(keys))


def _cut(shard: Shard, bits: Any, first: int = 0) -> Any:
    """This device's part of bits that were drawn whole (but for the leading dimensions before `first`)."""
    if shard.results[0].is_broadcast:
        return bits
    part = shard.local_result()
    starts = [np.int32(0) if d < first else shard.result_offset(0, d) for d in range(len(part))]
    return lax.dynamic_slice(bits, [lax.convert_element_type(s, np.int32) for s in starts], part)


@rule("random_seed", "random_clone")
def random_seed(operands: Any, results: Any, **_: Any) -> Rule:
    """One key for each seed, or key."""
    return build("... -> ...", operands, results)


@rule("random_wrap")
def random_wrap(operands: Any, results: Any, **_: Any) -> Rule:
    """Raw words, in the trailing dimension, become keys."""
    return build("... _ -> ...", operands, results, flops=0, fusible=True)


@rule("random_unwrap")
def random_unwrap(operands: Any, results: Any, **_: Any) -> Rule:
    """Keys become raw words, in the trailing dimension."""
    return build("... -> ... _", operands, results, flops=0, fusible=True)


@rule("random_split")
def random_split(operands: Any, results: Any, *, shape: Any) -> Rule:
    """Key by key; the new dimensions are small, and stay whole."""
    (keys,), new = operands, ["_"] * len(shape)
    batch = names(keys.ndim) if keys.dtype.name in _KEY_BY_KEY else ["_"] * keys.ndim
    return build(text([batch], [[*batch, *new]]), operands, results)


@rule("random_fold_in")
def random_fold_in(operands: Any, results: Any) -> Rule:
    """A number into each key; either may be one for all."""
    return build(_broadcasting(operands, results, results[0].dtype.name in _KEY_BY_KEY), operands, results)


@rule("threefry2x32")
def threefry2x32(operands: Any, results: Any) -> Rule:
    """The bare hash: elementwise."""
    flops = _THREEFRY_FLOPS * float(np.prod(results[0].shape))
    return build(_broadcasting(operands, results), operands, results, flops=flops, fusible=True)


def _broadcasting(operands: Any, results: Any, parallel: bool = True) -> str:
    """The notation of an elementwise op whose operands may be scalars, or have size 1 where the results do not."""
    shape = results[0].shape

    def dims(aval: Any) -> list[str]:
        sizes = zip(aval.shape, shape[len(shape) - aval.ndim :], strict=True)
        return [f"d{d}" if n == m and parallel else "_" for d, (n, m) in enumerate(sizes)]

    return text(map(dims, operands), map(dims, results))
