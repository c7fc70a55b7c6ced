"""GPUs that XLA can compile for without having one: what its compiler wants to know of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sbpjax.cluster import Cluster
from sbpjax.errors import WitnessUnavailable

# Limits that all these GPUs share (CUDA programming guide, "Compute Capabilities").
_COMMON: Final = """\
  threads_per_block_limit: 1024
  threads_per_warp: 32
  threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  shared_memory_per_block: 49152
  device_vendor: "NVIDIA Corporation"
  driver_version: "13.0.0"
  runtime_version: "13.0.0"
  compile_time_toolkit_version: "13.0.0"
  dnn_version: "9.10.0"
"""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as XLA's compiler sees it. Sizes in bytes, rates in bytes a second.

    Attributes:
        name: the `device_kind` by which JAX knows it.
        capability: major and minor compute capability.
        cores: streaming multiprocessors.
        fpus: float32 units of each.
        clock_ghz: boost clock.
        memory: of the device.
        memory_rate: peak, of the device's memory.
        l2: of the device.
        shared: shared memory of a multiprocessor.
        shared_optin: the most that one block can have of it.
        links: NVLinks to the other GPUs of the node.
        timed: whether XLA's speed-of-light estimate knows its links and matrix units. Where it does not, XLA schedules
            by rough defaults (the same time on one node and on a hundred), which say nothing: no time is shown.
    """

    name: str
    capability: tuple[int, int]
    cores: int
    fpus: int
    clock_ghz: float
    memory: int
    memory_rate: float
    l2: int
    shared: int
    shared_optin: int
    links: int
    timed: bool


# Figures as the drivers report them: OpenXLA, xla/backends/gpu/target_config/specs.
_KNOWN: Final = (
    Gpu("NVIDIA A100-SXM4-80GB", (8, 0), 108, 64, 1.41, 85100068864, 2.03904e12, 40 << 20, 167936, 166912, 12, False),
    Gpu("NVIDIA H100 80GB HBM3", (9, 0), 132, 128, 1.98, 84942979072, 3.35232e12, 50 << 20, 233472, 232448, 18, True),
    Gpu("NVIDIA H200", (9, 0), 132, 128, 1.98, 151397597184, 4.8e12, 50 << 20, 233472, 232448, 18, True),
    Gpu("NVIDIA B200", (10, 0), 148, 128, 1.965, 191514411008, 7.67232e12, 132644864, 233472, 232448, 18, True),
)


@dataclass(frozen=True, slots=True)
class Target:
    """What to compile for: one kind of GPU, so many to a node, so many nodes."""

    gpu: Gpu
    nodes: int
    gpus_per_node: int

    @classmethod
    def of(cls, cluster: Cluster) -> Target:
        """The target that a cluster is. Its innermost level is a node; all levels outside it join nodes.

        Raises:
            WitnessUnavailable: its devices are none that XLA's GPU compiler is known to compile for.
        """
        known = {gpu.name: gpu for gpu in _KNOWN}
        if cluster.device.name not in known:
            raise WitnessUnavailable(
                f"cluster {cluster.name} is of {cluster.device.name!r}, which XLA cannot compile for without having "
                f"one: only for {', '.join(known)}. Verify the plan for a cluster of those (cluster='8xh100')"
            )
        inside = cluster.levels[-1].size
        return cls(known[cluster.device.name], cluster.size // inside, inside)

    @property
    def size(self) -> int:
        """GPUs in all."""
        return self.nodes * self.gpus_per_node

    @property
    def topology(self) -> str:
        """As PJRT wants it: slices x hosts x devices."""
        return f"1x{self.nodes}x{self.gpus_per_node}"

    @property
    def config(self) -> str:
        """XLA's GpuTargetConfigProto, as text."""
        gpu = self.gpu
        major, minor = gpu.capability
        return (
            f"gpu_device_info {{\n{_COMMON}"
            f"  cuda_compute_capability {{ major: {major} minor: {minor} }}\n"
            f"  core_count: {gpu.cores}\n"
            f"  fpus_per_core: {gpu.fpus}\n"
            f"  clock_rate_ghz: {gpu.clock_ghz}\n"
            f"  device_memory_size: {gpu.memory}\n"
            f"  memory_bandwidth: {gpu.memory_rate:.0f}\n"
            f"  l2_cache_size: {gpu.l2}\n"
            f"  shared_memory_per_core: {gpu.shared}\n"
            f"  shared_memory_per_block_optin: {gpu.shared_optin}\n"
            f'  name: "{gpu.name}"\n'
            f"  device_interconnect_info {{ active_links: {gpu.links} }}\n"
            f'}}\nplatform_name: "CUDA"\ndnn_version_info {{ major: 9 minor: 10 }}\n'
            f'device_description_str: "{gpu.name}"\n'
        )
