"""The devices that a command runs on: real ones as they are, CPU ones made as many as a cluster has."""

from __future__ import annotations

import os
import re

import jax

from sbpjax.cluster import Cluster
from sbpjax.errors import InvalidMesh

FLAG = "--xla_force_host_platform_device_count"


def provide(cluster: Cluster) -> None:
    """See to it that JAX has the devices of a cluster. Must come before anything is computed.

    For a cluster of CPU devices, as many virtual ones are asked for as it has, unless the user has set their number;
    GPUs are left alone, unless the user has named a platform. Other clusters must be there.

    Raises:
        InvalidMesh: JAX sees fewer devices than the cluster has, or devices of another kind.
    """
    if cluster.device.platform == "cpu":
        flags = os.environ.get("XLA_FLAGS", "")
        if not re.search(rf"{FLAG}=", flags):
            os.environ["XLA_FLAGS"] = f"{flags} {FLAG}={cluster.size}".strip()
        if not os.environ.get("JAX_PLATFORMS"):
            jax.config.update("jax_platforms", "cpu")
    devices = jax.devices()
    platform = "cuda" if devices[0].platform == "gpu" else devices[0].platform
    if platform != cluster.device.platform:
        raise InvalidMesh(
            f"cluster {cluster.name} has {cluster.device.platform} devices, JAX runs on {platform}; set "
            f"JAX_PLATFORMS={cluster.device.platform}, or cluster=null for the devices that JAX sees"
        )
    if len(devices) < cluster.size:
        remedy = f"set XLA_FLAGS={FLAG}={cluster.size}" if platform == "cpu" else "start on a machine that has them"
        raise InvalidMesh(
            f"cluster {cluster.name} has {cluster.size} devices, JAX sees {len(devices)}; {remedy}, or give a smaller "
            "cluster"
        )
