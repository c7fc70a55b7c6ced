"""The process in which XLA's GPU compiler runs: reads one request, writes one answer.

It is a process of its own because the user's JAX may hold real GPUs, another platform or other flags, and because a
compiler that crashes must not take the user's program along. Run as `python -m sbpjax.witness.worker FOLDER`; the files
in the folder are those of `compiling.py`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
from jax.experimental import topologies

from sbpjax.compat import Portable, compile_portable
from sbpjax.witness.schedule import read_schedules


def answer(folder: Path) -> dict[str, Any]:
    """Compile the program in the folder.

    Returns:
        `hlo` (text of the optimised module), `memory` (bytes on one device), `schedule` (see `schedule.py`) and
        `seconds` (of compilation).
    """
    request = json.loads((folder / "request.json").read_text())
    dump = folder / "dump"
    dump.mkdir()
    topology = topologies.get_topology_desc(
        platform="cuda", target_config=request["config"], topology=request["topology"]
    )
    program = Portable(module=(folder / "program.mlirbc").read_bytes(), callbacks=False, **request["program"])
    # xla_dump_to also has XLA write every kernel; only the schedule is read.
    options = request["options"] | {"xla_dump_latency_hiding_schedule": True, "xla_dump_to": str(dump)}
    start = time.perf_counter()
    executable = compile_portable(program, topology.devices, options)
    seconds = time.perf_counter() - start
    stats = executable.get_compiled_memory_stats()
    return {
        "hlo": executable.hlo_modules()[0].to_string(),
        "memory": {
            "arguments": stats.argument_size_in_bytes,
            "outputs": stats.output_size_in_bytes,
            "aliased": stats.alias_size_in_bytes,
            "temporaries": stats.temp_size_in_bytes,
            "peak": stats.peak_memory_in_bytes,
        },
        "schedule": read_schedules(dump),
        "seconds": seconds,
    }


def main() -> None:
    """Answer the request in the folder that is named on the command line."""
    folder = Path(sys.argv[1])
    try:
        result = answer(folder)
    except (jax.errors.JaxRuntimeError, NotImplementedError, ValueError) as problem:  # the compiler's refusals
        result = {"refused": f"{type(problem).__name__}: {problem}"}
    (folder / "answer.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
