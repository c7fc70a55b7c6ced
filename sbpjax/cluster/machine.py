"""A cluster: so many devices of one kind, joined by levels of links."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from sbpjax import files
from sbpjax.cluster.files import Description, describe, profile, read, text
from sbpjax.cluster.hardware import Device, Level
from sbpjax.cluster.visible import visible_name
from sbpjax.errors import InvalidCluster, InvalidMesh


@dataclass(frozen=True)
class Cluster:
    """The hardware that a plan is made for.

    Attributes:
        name: `8xh100`, or what its file says.
        device: every device is like this one.
        levels: outermost first; their sizes multiply to the number of devices. A level of size 1 joins nothing, and
            tells what its links would be if the cluster grew.

    Example:
        >>> cluster = Cluster.parse("4x8xh100")
        >>> cluster.size, cluster.shape, cluster.device.name
        (32, (4, 8), 'NVIDIA H100 80GB HBM3')
    """

    name: str
    device: Device
    levels: tuple[Level, ...]

    @classmethod
    def parse(cls, cluster: Cluster | str | os.PathLike[str]) -> Cluster:
        """A cluster by name (`h100`, `8xh100`, `4x8xh100`: 4 nodes of 8) or by the path of a YAML file.

        Raises:
            UnknownName: no profile has that name.
            InvalidCluster: the file is wrong, or there are more devices than a node of that kind holds.
        """
        if isinstance(cluster, Cluster):
            return cluster
        if not isinstance(cluster, str | os.PathLike):
            raise InvalidCluster(
                f"cluster={cluster!r}: give a name such as 8xh100, the path of a YAML file, or a sbpjax.Cluster"
            )
        if isinstance(cluster, os.PathLike) or cluster.endswith((".yaml", ".yml")):
            return cls.from_yaml(cluster)
        found = re.fullmatch(r"((?:[0-9]+x)*)(.+)", cluster.strip().lower())
        counts = [int(n) for n in found[1].split("x")[:-1]] if found else []
        described = profile(found[2] if found else cluster)
        try:
            return cls(cluster, described.device, _counted(described, counts))
        except InvalidCluster as problem:
            raise InvalidCluster(f"cluster {cluster!r}: {problem}") from problem

    @classmethod
    def detect(cls) -> Cluster:
        """The devices that JAX sees in this process and its peers.

        Raises:
            InvalidCluster: no profile describes them; the message says how to describe them.
        """
        return cls.parse(visible_name().removeprefix("1x"))

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str]) -> Cluster:
        """The cluster that a YAML file describes.

        Raises:
            InvalidCluster: names the file, the line and the key.
        """
        return cls._described(read(Path(path)), str(path))

    @classmethod
    def from_dict(cls, data: Any, where: str = "cluster") -> Cluster:
        """The inverse of `to_dict`; `where` names the place in messages.

        Raises:
            InvalidCluster: names the place and the key.
        """
        return cls._described(describe(data, where), where)

    @classmethod
    def _described(cls, described: Description, where: str) -> Cluster:
        if described.is_profile:
            raise InvalidCluster(f"{where}: levels have no size; say how many parts each level joins")
        return cls(described.name, described.device, described.levels)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in a YAML file."""
        return text(self.name, self.device, self.levels)

    def to_yaml(self, path: str | os.PathLike[str] | None = None) -> str:
        """The text of a YAML file that describes this cluster; written to `path` where given.

        Raises:
            InvalidCluster: it cannot be written there.
        """
        written = yaml.safe_dump(self.to_dict(), sort_keys=False)
        if path is not None:
            try:
                files.write(path, written)
            except (OSError, ValueError) as error:
                raise InvalidCluster(
                    f"cannot write the cluster file {str(path)!r}: {files.reason(error)}; give the name of a file in a "
                    "folder that exists and can be written to"
                ) from error
        return written

    @property
    def size(self) -> int:
        """The number of devices."""
        return math.prod(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the levels that join anything, outermost first: `(4, 8)`; empty for one device."""
        return tuple(level.size for level in self.levels if level.size > 1)

    def part(self, size: int) -> Cluster:
        """As many of its devices: one node, or several whole ones.

        Raises:
            InvalidMesh: there are not so many, or they do not fill whole nodes.
        """
        if size > self.size:
            raise InvalidMesh(
                f"{size} devices are more than the {self.size} of {self}; give a smaller mesh or a larger cluster"
            )
        if size == self.size:
            return self
        levels: list[Level] = []
        rest = size
        for level in reversed(self.levels):
            here = min(rest, level.size)
            if rest % here:
                raise InvalidMesh(
                    f"{size} of the {self.size} devices of {self} do not fill whole nodes of {here}; give a mesh whose "
                    f"size {here} divides, or a cluster of {size} devices"
                )
            levels.insert(0, replace(level, size=here))
            rest //= here
        kind = re.sub(r"^(?:[0-9]+x)*", "", self.name)
        counts = [level.size for level in levels if level.size > 1]
        return Cluster("x".join([*map(str, counts), kind]), self.device, tuple(levels))

    def __str__(self) -> str:
        return self.name


def _counted(described: Description, counts: Sequence[int]) -> tuple[Level, ...]:
    """A profile's levels with the innermost counts given, the outer ones 1."""
    if len(counts) > len(described.levels):
        raise InvalidCluster(f"{len(counts)} counts for hardware of {len(described.levels)} levels; give fewer")
    sizes = [1] * (len(described.levels) - len(counts)) + list(counts)
    return tuple(replace(level, size=size) for level, size in zip(described.levels, sizes, strict=True))
