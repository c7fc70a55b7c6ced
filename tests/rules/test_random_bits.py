"""A shard draws the bits that one device would draw: in corners that examples under default settings do not reach."""

import jax
import numpy as np
from rule_corpus import applications

import sbpjax.rules  # noqa: F401
from sbpjax.rules.check import check_rule
from sbpjax.rules.random import counts

MESH = {"x": 2, "y": 2}


def checked(fn, keys):
    tried = list(applications("random_bits", fn, keys))
    assert tried
    return [check_rule(equation, operands, MESH) for equation, operands in tried]


def test_bits_of_64_are_two_words():
    with jax.enable_x64(True):
        (found,) = checked(lambda key: jax.random.bits(key, (4, 8), np.uint64), jax.random.key(1))
    assert found > 1


def test_bits_of_the_older_threefry_are_cut_out_of_the_whole():
    with jax.threefry_partitionable(False):
        keys = jax.random.split(jax.random.key(1), 4)
        checked(lambda keys: jax.random.bits(keys[0], (4, 8)), keys)
        (found,) = checked(jax.vmap(lambda key: jax.random.bits(key, (4,))), keys)
    assert found > 1


def test_positions_beyond_32_bits_are_counted_in_two_words():
    shape, offsets = (70_001, 70_003, 2**17 + 1), (69_990, 12_345, 2**17 - 2)
    high, low = counts(shape, (2, 3, 3), [np.int32(offset) for offset in offsets])
    i, j, k = (x.astype(object) + offset for x, offset in zip(np.indices((2, 3, 3)), offsets, strict=True))
    positions = (i * shape[1] + j) * shape[2] + k
    assert np.array_equal(np.asarray(high), (positions >> 32).astype(np.uint32))
    assert np.array_equal(np.asarray(low), (positions & 0xFFFFFFFF).astype(np.uint32))


def test_positions_within_32_bits_have_no_high_word():
    high, low = counts((4, 6), (2, 3), [np.int32(2), np.int32(3)])
    assert not np.asarray(high).any()
    assert np.array_equal(np.asarray(low), [[15, 16, 17], [21, 22, 23]])
