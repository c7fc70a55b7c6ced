"""Counting along a dimension: a device's part starts where its shard does."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax

from sbpjax.rules.notation import build, names, text
from sbpjax.rules.registry import rule
from sbpjax.rules.rule import Rule, Shard


@rule("iota")
def iota(operands: Any, results: Any, **_: Any) -> Rule:
    """Every dimension is parallel; along the counted one a shard adds its offset."""
    return build(text([], [names(results[0].ndim)]), operands, results, local=_local_iota, fusible=True)


def _local_iota(shard: Shard) -> Any:
    shape, dimension, dtype = shard.local_result(), shard.params["dimension"], shard.params["dtype"]
    if not shard.results[0].dims[dimension]:
        return shard.bind(shape=shape, sharding=None)
    # Count in integers: a float counts exactly only as far as its mantissa goes, and then rounds once, as iota does.
    wide = np.int64 if shard.result_shapes[0][dimension] > 2**31 else np.int32
    count = shard.bind(shape=shape, dtype=np.dtype(wide), sharding=None)
    offset = lax.convert_element_type(shard.result_offset(0, dimension), wide)
    return lax.convert_element_type(count + offset, dtype)
