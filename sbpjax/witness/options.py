"""The XLA options under which plans are judged, and which emitted programs carry on GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

Options: TypeAlias = Mapping[str, str | int | bool]

JUDGED: Final[Options] = {
    "xla_gpu_enable_latency_hiding_scheduler": True,
    "xla_gpu_enable_analytical_sol_latency_estimator": True,
}
"""Communication is scheduled to overlap with compute, by XLA's speed-of-light estimate of both."""
