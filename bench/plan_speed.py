"""How long trace and plan take for a decoder of Llama-3-8B's dimensions, and how much memory.

    python bench/plan_speed.py                 # three cases
    python bench/plan_speed.py 4x8             # layers x devices; 32x8x8 is a mesh of two axes

Each case runs in a process of its own, so that peak memory is its own and nothing is cached.
"""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import time

CASES = ("4x8", "32x8", "32x8x8")


def measure(case: str) -> dict[str, float | str]:
    """Plan one case in this process."""
    import jax
    from llama import Dimensions, abstract_arguments, train_step

    import sbpjax
    from sbpjax.program.trace import trace

    layers, *sizes = map(int, case.split("x"))
    mesh = dict(zip(("data", "model"), sizes, strict=False))
    devices = math.prod(sizes)
    cluster = "8xh100" if devices == 8 else f"{devices // 8}x8xh100"
    arguments = abstract_arguments(Dimensions(layers=layers), batch=2 * devices if len(sizes) == 1 else devices)
    step = jax.jit(train_step, donate_argnums=0)
    start = time.perf_counter()
    trace(step, arguments)
    traced = time.perf_counter()
    plan = sbpjax.plan(step, *arguments, cluster=cluster, mesh=mesh)
    planned = time.perf_counter()
    return {
        "case": case,
        "trace_seconds": traced - start,
        "trace_and_plan_seconds": planned - traced,
        "cpu_seconds": time.process_time(),
        "gap": plan.gap,
        "step_ms": 1e3 * plan.step_seconds,
        "peak_gib": plan.peak_bytes / 2**30,
        "rss_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "method": plan.estimate.method,
    }


def main(cases: list[str]) -> None:
    """Run the cases one after the other and print a table."""
    print("| layers x mesh | trace s | trace + plan s | process CPU s | RSS GiB | gap | step ms | peak GiB | method |")
    print("|---|---|---|---|---|---|---|---|---|")
    for case in cases:
        code = f"import json, plan_speed; print(json.dumps(plan_speed.measure({case!r})))"
        environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        row = json.loads(done.stdout.splitlines()[-1])
        print(
            f"| {row['case']} | {row['trace_seconds']:.1f} | {row['trace_and_plan_seconds']:.1f} | "
            f"{row['cpu_seconds']:.1f} | {row['rss_gib']:.2f} | {100 * row['gap']:.2f} % | {row['step_ms']:.1f} | "
            f"{row['peak_gib']:.2f} | {row['method']} |",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:] or list(CASES))
