"""Barriers that hold where the compiler drops them.

A recomputed activation and a weight that is gathered twice cost time and save memory on purpose; a compiler that merges
equal expressions undoes that, and then runs other collectives than were planned. GPUs and TPUs keep an
`optimization_barrier` until the last; XLA for CPU drops it before it merges. There a value is hidden in a select whose
condition is always true, which XLA cannot know.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh

from sbpjax.emit.shardings import AnyMesh

_MORE_THAN_DEVICES = 2**20


def drops_barriers(mesh: AnyMesh) -> bool:
    """Whether the mesh's compiler removes optimization barriers before it merges equal expressions."""
    return isinstance(mesh, Mesh) and mesh.devices.flat[0].platform == "cpu"


def hidden(x: Any, axis_index: Any, number: int) -> Any:
    """The same value, not to be taken for what it was, nor for what is hidden under another number.

    Args:
        x: this device's part, inside a `shard_map`.
        axis_index: the device's index along some mesh axis.
        number: different for everything hidden.
    """
    if jnp.issubdtype(x.dtype, jax.dtypes.extended):
        return x
    always = lax.lt(axis_index, np.int32(_MORE_THAN_DEVICES + number))
    return lax.select_n(always, lax.full_like(x, 0), x)
