"""Figures as people read and write them: `13.2 MiB`, `4.70 ms`, `1.2 TFLOP`."""

from __future__ import annotations

from sbpjax.cluster.quantities import parse_bytes as _parse_bytes
from sbpjax.errors import InvalidOption


def parse_bytes(amount: int | float | str, option: str = "memory_limit") -> int:
    """Bytes of `"72GiB"`, `"80GB"`, or of a plain number.

    Args:
        amount: what the user wrote.
        option: what it was written for, for the message.

    Raises:
        InvalidOption: it is no positive amount of memory.
    """
    try:
        return _parse_bytes(amount)
    except ValueError as problem:
        raise InvalidOption(f"{option}: {problem}") from problem


def format_bytes(n: float) -> str:
    """Three significant digits and a binary unit: `512 B`, `13.2 MiB`, `1.50 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n) < 999.5:
            return f"{n:.0f} B" if unit == "B" else f"{_three(n)} {unit}"
        n /= 1024
    return f"{_three(n)} TiB"


def format_seconds(seconds: float) -> str:
    """Three significant digits and the unit that suits: `820 ns`, `35.0 us`, `4.70 ms`, `1.20 s`."""
    if seconds == 0:
        return "0"
    for scale, unit in ((1e9, "ns"), (1e6, "us"), (1e3, "ms")):
        if abs(seconds * scale) < 999.5:
            return f"{_three(seconds * scale)} {unit}"
    return f"{_three(seconds)} s"


def format_flops(flops: float) -> str:
    """Operations with a decimal unit: `3.20 GFLOP`."""
    for unit in ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"):
        if abs(flops) < 999.5:
            return f"{flops:.0f} FLOP" if unit == "FLOP" else f"{_three(flops)} {unit}"
        flops /= 1000
    return f"{_three(flops)} PFLOP"


def format_share(share: float) -> str:
    """A share in percent, one decimal below ten: `0.0 %`, `3.4 %`, `85 %`."""
    percent = 100 * share
    return f"{percent:.1f} %" if abs(percent) < 9.95 else f"{percent:.0f} %"


def _three(x: float) -> str:
    if abs(x) < 9.995:
        return f"{x:.2f}"
    return f"{x:.1f}" if abs(x) < 99.95 else f"{x:.0f}"
