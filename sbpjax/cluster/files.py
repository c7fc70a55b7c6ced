"""Cluster descriptions in YAML: read, checked key by key, and written back.

A *profile* (in `profiles/`) describes hardware of which there may be any number: its levels have no `size`, and
`at_most` where the hardware sets one. A user's own file says how many there are: every level has its `size`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

from sbpjax.cluster.hardware import Device, Level, Platform
from sbpjax.cluster.quantities import parse_bytes
from sbpjax.errors import InvalidCluster, UnknownName

PROFILES: Final = Path(__file__).parent / "profiles"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DeviceEntry(_Strict):
    """`device:` of a file."""

    name: str
    platform: Platform
    memory_bytes: Annotated[PositiveInt, BeforeValidator(parse_bytes)]
    memory_bytes_per_second: PositiveFloat
    flops_per_second: dict[str, PositiveFloat]
    kinds: list[str] = []


class LevelEntry(_Strict):
    """One item of `levels:`, outermost first."""

    size: PositiveInt | None = None
    at_most: PositiveInt | None = None
    start_seconds: Annotated[float, Field(ge=0)] = 0.0
    latency_seconds: Annotated[float, Field(ge=0)]
    bytes_per_second: PositiveFloat


class Entry(_Strict):
    """A whole file."""

    name: str
    device: DeviceEntry | str
    levels: Annotated[list[LevelEntry], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Description:
    """What a file says: a profile's levels have size 1 until a count is given."""

    name: str
    device: Device
    levels: tuple[Level, ...]
    is_profile: bool


def profile_names() -> list[str]:
    """The profiles that are shipped."""
    return sorted(path.stem for path in PROFILES.glob("*.yaml"))


@cache
def profile(name: str) -> Description:
    """A shipped profile.

    Raises:
        UnknownName: there is none of that name.
    """
    if name not in profile_names():
        raise UnknownName.among(
            "cluster", name, profile_names(), "Write 8xh100, 4x8xh100 (4 nodes of 8), or the path of a YAML file."
        )
    return read(PROFILES / f"{name}.yaml")


def read(path: Path) -> Description:
    """The description in a YAML file.

    Raises:
        InvalidCluster: the file cannot be read, is no YAML, or a key is missing, unknown or wrong; names file and line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidCluster(f"cluster file {str(path)!r} cannot be read ({problem}); check the path") from problem
    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.YAMLError as problem:
        raise InvalidCluster(f"cluster file {str(path)!r} is not YAML: {problem}") from problem
    return describe(data, str(path), tree)


def describe(data: Any, where: str, tree: yaml.Node | None = None) -> Description:
    """Check what a file (or a plan file's `cluster:` entry) holds.

    Raises:
        InvalidCluster: a key is missing, unknown or wrong; `where` and, given the YAML `tree`, the line are named.
    """
    try:
        entry = Entry.model_validate(data)
    except ValidationError as problem:
        error = problem.errors()[0]
        # A device may be an entry or a name: pydantic puts the alternative that failed into the path.
        keys = [k for k in error["loc"] if k not in ("DeviceEntry", "str")]
        raise InvalidCluster(
            f"{_place(where, tree, keys)}: {'.'.join(map(str, keys)) or 'the file'}: {error['msg']}. "
            "profiles/h100.yaml in sbpjax/cluster shows every key."
        ) from problem
    sized = [level.size is not None for level in entry.levels]
    if any(sized) and not all(sized):
        i = sized.index(False)
        place = _place(where, tree, ["levels", i])
        raise InvalidCluster(f"{place}: levels.{i} has no size; say how many parts the level joins")
    try:
        levels = tuple(
            Level(level.size or 1, level.latency_seconds, level.bytes_per_second, level.at_most, level.start_seconds)
            for level in entry.levels
        )
        return Description(entry.name, _device(entry.device), levels, is_profile=not all(sized))
    except InvalidCluster as problem:
        raise InvalidCluster(f"{where}: {problem}") from problem


def text(name: str, device: Device, levels: Sequence[Level]) -> dict[str, Any]:
    """The plain data from which `describe` makes the same again."""
    return {
        "name": name,
        "device": {
            "name": device.name,
            "platform": device.platform,
            "memory_bytes": device.memory_bytes,
            "memory_bytes_per_second": device.memory_bytes_per_second,
            "flops_per_second": dict(device.flops_per_second),
            "kinds": list(device.kinds),
        },
        "levels": [
            {
                "size": level.size,
                "start_seconds": level.start_seconds,
                "latency_seconds": level.latency_seconds,
                "bytes_per_second": level.bytes_per_second,
                **({} if level.at_most is None else {"at_most": level.at_most}),
            }
            for level in levels
        ],
    }


def _device(entry: DeviceEntry | str) -> Device:
    if isinstance(entry, str):
        return profile(entry).device
    return Device(
        entry.name,
        entry.platform,
        entry.memory_bytes,
        entry.memory_bytes_per_second,
        entry.flops_per_second,
        tuple(entry.kinds),
    )


def _place(where: str, tree: yaml.Node | None, keys: Sequence[str | int]) -> str:
    """The file and the line of the entry at `keys`, or of the innermost that is there."""
    if tree is None:
        return where
    node = tree
    line = tree.start_mark.line
    for key in keys:
        children: Mapping[Any, tuple[int, yaml.Node]] = {}
        if isinstance(node, yaml.MappingNode):
            children = {k.value: (k.start_mark.line, v) for k, v in node.value}
        elif isinstance(node, yaml.SequenceNode):
            children = {i: (v.start_mark.line, v) for i, v in enumerate(node.value)}
        if key not in children:
            break
        line, node = children[key]
    return f"{where}, line {line + 1}"
