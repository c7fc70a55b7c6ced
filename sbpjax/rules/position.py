"""Where a global index lies in one device's part of a dimension.

Indices in a program count from the start of the whole tensor. A device that holds positions `offset` to `offset +
length` shifts them, and must know which of them are its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax


def clamped(index: Any, top: int) -> Any:
    """`index` brought into `[0, top]`, as a signed integer that holds `top` whatever the index's own dtype."""
    top = min(top, int(np.iinfo(index.dtype).max))
    return widened(lax.clamp(index.dtype.type(0), index, index.dtype.type(top)))


def widened(index: Any) -> Any:
    """`index` as int32, or int64 where it has 64 bits. What does not fit becomes negative: out of bounds as it was."""
    return lax.convert_element_type(index, np.int64 if index.dtype.itemsize == 8 else np.int32)


def located(position: Any, offset: Any, length: int) -> tuple[Any, Any]:
    """The index into this device's part (clamped to it), and whether the position is in this part at all."""
    shifted = position - lax.convert_element_type(offset, position.dtype)
    inside = lax.bitwise_and(lax.ge(shifted, position.dtype.type(0)), lax.lt(shifted, position.dtype.type(length)))
    return lax.clamp(position.dtype.type(0), shifted, position.dtype.type(max(length - 1, 0))), inside
