"""What a cluster is made of: one kind of device, and levels of links that join them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sbpjax.errors import InvalidCluster

Platform: TypeAlias = Literal["cuda", "cpu"]


@dataclass(frozen=True)
class Device:
    """One accelerator, or one virtual CPU device.

    Attributes:
        name: as its maker calls it.
        platform: what JAX lowers for.
        memory_bytes: what a program can use of its memory.
        memory_bytes_per_second: peak rate of reading and writing it.
        flops_per_second: peak dense arithmetic rate by dtype (`float32`, `bfloat16`, ...; `tfloat32` is what matrix
            products of float32 reach in JAX's default precision on NVIDIA GPUs).
        kinds: the `device_kind` by which JAX knows it.
    """

    name: str
    platform: Platform
    memory_bytes: int
    memory_bytes_per_second: float
    flops_per_second: Mapping[str, float]
    kinds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if "float32" not in self.flops_per_second:
            raise InvalidCluster(f"device {self.name!r}: flops_per_second lacks float32; give at least that rate")
        rates = {"memory_bytes": self.memory_bytes, "memory_bytes_per_second": self.memory_bytes_per_second}
        rates |= {f"flops_per_second.{dtype}": rate for dtype, rate in self.flops_per_second.items()}
        for key, value in rates.items():
            if not (0 < value < math.inf):
                raise InvalidCluster(f"device {self.name!r}: {key} is {value}; give a positive number")

    def __hash__(self) -> int:
        return hash((self.name, self.platform, self.memory_bytes, tuple(sorted(self.flops_per_second.items()))))


@dataclass(frozen=True, slots=True)
class Level:
    """Links that join `size` equal parts of a cluster: nodes by InfiniBand, GPUs of a node by NVLink.

    Attributes:
        size: how many parts it joins.
        latency_seconds: time of one hop of an empty message.
        bytes_per_second: what one device sends through this level, one way, while all others do the same.
        at_most: the most parts that the hardware can join; None when any number can be.
        start_seconds: time to start a collective over it, before its first hop.
    """

    size: int
    latency_seconds: float
    bytes_per_second: float
    at_most: int | None = None
    start_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InvalidCluster(f"a level joins {self.size} parts; give a size of 1 or more")
        if self.at_most is not None and self.size > self.at_most:
            raise InvalidCluster(
                f"a level joins {self.size} parts, but its links hold at most {self.at_most}; "
                "spread the devices over more parts of the level outside it (as in 2x8xh100)"
            )
        for key in ("latency_seconds", "start_seconds"):
            if not (0 <= getattr(self, key) < math.inf):
                raise InvalidCluster(f"a level's {key} is {getattr(self, key)}; give zero or more")
        if not (0 < self.bytes_per_second < math.inf):
            raise InvalidCluster(f"a level's bytes_per_second is {self.bytes_per_second}; give a positive number")
