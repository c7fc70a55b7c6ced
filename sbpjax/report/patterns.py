"""Many paths said as few patterns: `state.params.layers_{0..31}.mlp.up` instead of thirty-two lines.

Only paths that agree in everything that a table shows of them are merged, so that no pattern hides a difference.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeAlias

Parts: TypeAlias = tuple[tuple[str, ...], ...]
"""For each component of a path, the values that it takes, in order of appearance."""


def merge(paths: Iterable[tuple[str, Hashable]], separator: str = ".") -> list[tuple[str, list[int]]]:
    """Merge paths of one class that differ in one component, again and again.

    Args:
        paths: each path with its class, in the order to keep.
        separator: what stands between components.

    Returns:
        For each pattern, the positions that it stands for; patterns in the order of their first path.
    """
    classes: dict[Hashable, dict[Parts, list[int]]] = {}
    for position, (path, kind) in enumerate(paths):
        parts = tuple((part,) for part in path.split(separator))
        classes.setdefault(kind, {}).setdefault(parts, []).append(position)
    rows = []
    for members in classes.values():
        for parts, found in _merged(members).items():
            rows.append((separator.join(_component(values) for values in parts), found))
    return sorted(rows, key=lambda row: row[1][0])


def _merged(members: Mapping[Parts, list[int]]) -> Mapping[Parts, list[int]]:
    """Merge along every component until nothing merges. Layer numbers come first, so that they end up as ranges."""
    before = None
    while before != len(members):
        before = len(members)
        for numbered in (True, False):
            for k in range(max((len(parts) for parts in members), default=0)):
                members = _along(members, k, numbered)
    return members


def _along(members: Mapping[Parts, list[int]], k: int, numbered: bool) -> Mapping[Parts, list[int]]:
    buckets: dict[Hashable, list[Parts]] = {}
    for parts in members:
        if k >= len(parts):
            key: Hashable = parts
        elif numbered:
            stems = {re.sub(r"\d+$", "", value) for value in parts[k]}
            key = (parts[:k], parts[k + 1 :], stems.pop() if len(stems) == 1 else parts[k])
        else:
            key = (parts[:k], parts[k + 1 :])
        buckets.setdefault(key, []).append(parts)
    out: dict[Parts, list[int]] = {}
    for same in buckets.values():
        if len(same) == 1:
            out[same[0]] = members[same[0]]
            continue
        values = tuple(dict.fromkeys(value for parts in same for value in parts[k]))
        out[(*same[0][:k], values, *same[0][k + 1 :])] = sorted(i for parts in same for i in members[parts])
    return out


def _component(values: Sequence[str]) -> str:
    """`layers_{0..3}`, `{query,key}`."""
    if len(values) == 1:
        return values[0]
    split = [re.fullmatch(r"(.*?)(\d+)", value) for value in values]
    if all(split) and len({m[1] for m in split if m}) == 1:
        stem = next(m[1] for m in split if m)
        return f"{stem}{{{ranges([int(m[2]) for m in split if m])}}}"
    return f"{{{','.join(values)}}}"


def ranges(numbers: Iterable[int]) -> str:
    """`0..3,7` for 0, 1, 2, 3, 7."""
    runs: list[list[int]] = []
    for n in sorted(numbers):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ",".join(str(a) if a == b else f"{a}..{b}" if b > a + 1 else f"{a},{b}" for a, b in runs)


def star(path: str) -> str:
    """A module path with its layer numbers left out: `layers_*/mlp`."""
    return re.sub(r"(?<=[A-Za-z_])\d+(?=/|$)", "*", path)
