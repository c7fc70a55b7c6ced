"""Eight virtual CPU devices for every test; set before JAX is imported."""

import os

os.environ["JAX_PLATFORMS"] = "cpu"
flags = os.environ.get("XLA_FLAGS", "")
if "xla_force_host_platform_device_count" not in flags:
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count=8".strip()

from hypothesis import settings

settings.register_profile("sbpjax", deadline=None, derandomize=True)
settings.load_profile("sbpjax")
