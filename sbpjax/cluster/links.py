"""The time of a collective, by the links that its devices lie on.

A mesh is laid over a cluster in row-major order, its last axis innermost. The devices of one group (those that differ
only along the axes of a collective) spread over one or more levels of links. With P devices in the group, at each level
*members* m_k parts of the level are reached from one another, and *inside* each part lie i_k devices of the group.

Rings (all-gather, reduce-scatter; an all-reduce is two rounds of them) move (P − 1)/P of T bytes through every device,
where T is the larger of operand and result. A ring that enters a node has i_k devices there, each with its own share of
the links that leave it, so as many rings run side by side and the slowest level rules:

    seconds = max_k(start_k) + Σ_k latency_k · rounds · (m_k − 1) + rounds · (P − 1)/P · T / min_k(i_k · bandwidth_k)

(the bandwidth-optimal ring of Patarasuk and Yuan, 2009, as NCCL runs it and as XLA's speed-of-light model prices it).
An all-to-all sends T/P to each other device, of which (m_k − 1) · i_k are first met at level k; a permutation sends all
T to one of them. Neither gains from the other devices of its node: each uses its own links. (One message needs one hop;
a permutation is charged a whole round of them, or chains of permutations would pose as cheap collectives.)

    all-to-all:  max_k(start_k) + Σ_k latency_k · (m_k − 1) · i_k + T · max_k((m_k − 1) · i_k / P / bandwidth_k)
    permutation: max_k(start_k) + Σ_k latency_k · (m_k − 1) + T / min_k(bandwidth_k)

Sums and extrema run over the levels with m_k > 1. With latency 0 and 1 byte/s, times P, this is OneFlow's table of the
bytes that a boxing moves (Yuan et al., 2021, table 2).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import TypeAlias

from sbpjax.cluster.machine import Cluster
from sbpjax.errors import InvalidMesh, UnknownName
from sbpjax.sbp import MeshShape, mesh_size

Affine: TypeAlias = tuple[float, float]
"""Latency in seconds, and seconds for each byte."""

_ROUNDS = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2}


class Links:
    """The links of a cluster as the axes of a mesh see them.

    Attributes:
        cluster: the hardware.
        mesh: axis sizes, major to minor; their product is the number of devices.

    Raises:
        InvalidMesh: the mesh has more or fewer devices than the cluster, or an axis of no device.
    """

    def __init__(self, cluster: Cluster, mesh: MeshShape) -> None:
        if any(size < 1 for size in mesh.values()):
            raise InvalidMesh(f"mesh {dict(mesh)}: every axis needs a size of 1 or more")
        if mesh_size(mesh) != cluster.size:
            raise InvalidMesh(
                f"mesh {dict(mesh)} has {mesh_size(mesh)} devices, cluster {cluster} has {cluster.size}; "
                "change the axis sizes or the cluster so that they agree"
            )
        self.cluster = cluster
        self.mesh: MeshShape = dict(mesh)
        self._key = (cluster, tuple(mesh.items()))
        self._hash = hash(self._key)
        self._affine: dict[tuple[str, tuple[str, ...]], Affine] = {}
        self._spans: dict[tuple[str, ...], tuple[tuple[int, int], ...]] = {}

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Links) and self._hash == other._hash and self._key == other._key)

    def __repr__(self) -> str:
        return f"Links({self.cluster}, {dict(self.mesh)})"

    def seconds(self, kind: str, axes: Sequence[str], nbytes: float) -> float:
        """Seconds of one collective among the devices along `axes`, all groups at once.

        Args:
            kind: `all_reduce`, `reduce_scatter`, `all_gather`, `all_to_all` or `permute`.
            axes: the mesh axes that take part.
            nbytes: the larger of its operand and its result on one device.
        """
        latency, rate = self.affine(kind, axes)
        return latency + rate * nbytes

    def affine(self, kind: str, axes: Sequence[str]) -> Affine:
        """The same as latency and seconds for each byte: a collective's time is affine in its bytes.

        Raises:
            UnknownName: no such kind, or an axis that the mesh lacks.
        """
        key = (kind, tuple(axes))
        found = self._affine.get(key)
        if found is None:
            found = self._affine[key] = self._price(kind, key[1])
        return found

    def span(self, axes: Sequence[str]) -> tuple[tuple[int, int], ...]:
        """For each level, outermost first: how many of its parts a group along `axes` joins, and its devices in each.

        Where groups lie unevenly on a level (three nodes' worth of devices on a mesh of other sizes), the most parts
        and the fewest devices.
        """
        key = tuple(axes)
        found = self._spans.get(key)
        if found is None:
            found = self._spans[key] = self._measure(key)
        return found

    def crosses_nodes(self, axes: Sequence[str]) -> bool:
        """Whether devices along `axes` lie in different nodes: on any level but the innermost."""
        return any(members > 1 for members, _ in self.span(axes)[:-1])

    def _price(self, kind: str, axes: tuple[str, ...]) -> Affine:
        spanned = [
            (level, members, inside)
            for level, (members, inside) in zip(self.cluster.levels, self.span(axes), strict=True)
            if members > 1
        ]
        devices = math.prod(self.mesh[a] for a in axes)
        if not spanned:
            return 0.0, 0.0
        start = max(level.start_seconds for level, _, _ in spanned)
        if kind in _ROUNDS:
            rounds = _ROUNDS[kind]
            latency = start + sum(level.latency_seconds * rounds * (members - 1) for level, members, _ in spanned)
            slowest = min(inside * level.bytes_per_second for level, _, inside in spanned)
            return latency, rounds * (devices - 1) / devices / slowest
        if kind == "all_to_all":
            peers = [(level, (members - 1) * inside) for level, members, inside in spanned]
            latency = start + sum(level.latency_seconds * n for level, n in peers)
            return latency, max(n / devices / level.bytes_per_second for level, n in peers)
        if kind == "permute":
            latency = start + sum(level.latency_seconds * (members - 1) for level, members, _ in spanned)
            return latency, 1 / min(level.bytes_per_second for level, _, _ in spanned)
        raise UnknownName.among("collective", kind, [*_ROUNDS, "all_to_all", "permute"])

    def _measure(self, axes: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
        for axis in axes:
            if axis not in self.mesh:
                raise UnknownName.among("mesh axis", axis, self.mesh)
        strides, stride = {}, 1
        for axis in reversed(list(self.mesh)):
            strides[axis], stride = stride, stride * self.mesh[axis]
        offsets = _lattice([(self.mesh[a], strides[a]) for a in axes])
        starts = _lattice([(n, strides[a]) for a, n in self.mesh.items() if a not in axes])
        spans = []
        part = 1
        for level in reversed(self.cluster.levels):
            whole = part * level.size
            members, inside = 1, len(offsets)
            for start in starts:
                parts = Counter((start + offset) // part for offset in offsets)
                members = max(members, *Counter(p * part // whole for p in parts).values())
                inside = min(inside, *parts.values())
            spans.insert(0, (members, inside))
            part = whole
        return tuple(spans)


def _lattice(axes: Sequence[tuple[int, int]]) -> list[int]:
    """All sums of one multiple of each stride below its size."""
    return [sum(digits) for digits in product(*(range(0, size * stride, stride) for size, stride in axes))]
