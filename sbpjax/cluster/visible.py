"""The devices that JAX sees: which profile they have, and how they are spread over nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sbpjax.cluster.files import PROFILES, profile, profile_names
from sbpjax.errors import InvalidCluster


def visible_name() -> str:
    """The name of the cluster that JAX sees: `8xh100`, `2x8xh100`, `8xcpu`.

    Raises:
        InvalidCluster: no profile describes these devices, or nodes differ in size.
    """
    import jax

    return name_of(jax.devices())


def name_of(devices: Sequence[Any]) -> str:
    """The same for given JAX devices."""
    # GPUs know the machine (or NVLink domain) that they are in; one process may drive a whole machine or one GPU of it.
    nodes = Counter(d.process_index if (node := getattr(d, "slice_index", None)) is None else node for d in devices)
    if len(set(nodes.values())) != 1:
        raise InvalidCluster(
            f"nodes hold different numbers of devices ({sorted(nodes.values())}); "
            "start the same number on each, or give cluster= a YAML file"
        )
    return f"{len(nodes)}x{nodes.most_common(1)[0][1]}x{profile_of(devices[0].platform, devices[0].device_kind)}"


def profile_of(platform: str, kind: str) -> str:
    """The profile of a JAX device."""
    if platform == "cpu":
        return "cpu"
    for name in profile_names():
        if kind in profile(name).device.kinds:
            return name
    raise InvalidCluster(
        f"no profile describes the device {kind!r} ({platform}); describe it in a YAML file as in "
        f"{PROFILES / 'h100.yaml'} and pass cluster='its path'"
    )
