"""Eight virtual CPU devices for every test; set before JAX is imported.

Compiling is what the tests wait for: LLVM is told not to optimise, which halves it. XLA's own passes are what they are.
"""

import os

os.environ["JAX_PLATFORMS"] = "cpu"
flags = os.environ.get("XLA_FLAGS", "")
for flag, value in (("xla_force_host_platform_device_count", 8), ("xla_backend_optimization_level", 0)):
    if flag not in flags:
        flags = f"{flags} --{flag}={value}".strip()
os.environ["XLA_FLAGS"] = flags

from hypothesis import settings

settings.register_profile("sbpjax", deadline=None, derandomize=True)
settings.load_profile("sbpjax")
