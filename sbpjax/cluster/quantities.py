"""Amounts of memory as people write them: `72GiB`, `80 GB`, `1024`."""

from __future__ import annotations

import math
import re
from typing import Final

_UNITS: Final = {"": 1, "b": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("kmgt", start=1)
    for suffix, base in (("b", 1000), ("ib", 1024))
}


def parse_bytes(amount: str | float) -> int:
    """Bytes of `"72GiB"` (1024³), `"72GB"` (1000³), or of a plain number.

    Raises:
        ValueError: the text is no such amount, or it is not positive.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:[eE]\+?\d+)?)\s*([a-zA-Z]*)\s*", str(amount), re.ASCII)
    unit = _UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None or not 0 < float(found[1]) < math.inf:
        raise ValueError(f"not an amount of memory: {amount!r} (write 72GiB, 80GB, or a number of bytes)")
    return round(float(found[1]) * unit)
