"""Have XLA's GPU compiler compile a program for GPUs that are not there, in a process of its own; remember the answer.

The folder of a request holds `program.mlirbc` (StableHLO bytecode) and `request.json`; the worker adds `answer.json`.
The folder is removed whatever happens. Answers are kept in the user's cache folder, one file each, named by a hash of
all that the answer depends on.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from platformdirs import user_cache_path

from sbpjax.compat import Portable
from sbpjax.errors import CompilationFailed, WitnessUnavailable
from sbpjax.witness.gpus import Target
from sbpjax.witness.options import JUDGED, Options
from sbpjax.witness.schedule import Timed

CACHE_VARIABLE: Final = "SBPJAX_CACHE"
"""Environment variable: the folder to keep answers in; empty: keep none."""

_CACHED_FILES: Final = 500
_FORMAT: Final = 1
_PLUGINS: Final = ("jax-cuda13-plugin", "jax-cuda12-plugin")


@dataclass(frozen=True)
class Compiled:
    """What XLA made of a program.

    Attributes:
        hlo: the optimised, scheduled module, as text.
        memory: bytes on one device: `arguments`, `outputs`, `aliased`, `temporaries`, `peak`.
        schedule: by computation, XLA's predicted start and end of each instruction, in seconds.
        seconds: that XLA took.
        cached: whether the answer was remembered.
    """

    hlo: str
    memory: Mapping[str, int]
    schedule: Mapping[str, list[Timed]]
    seconds: float
    cached: bool = False


def compile_for(
    program: Portable, target: Target, options: Options = JUDGED, *, timeout_seconds: float | None = None
) -> Compiled:
    """Compile a program for a target.

    Args:
        program: lowered for the platform `cuda`.
        target: at least as many GPUs as the program has partitions.
        options: XLA's.
        timeout_seconds: after which the compiler is stopped; None: never.

    Raises:
        WitnessUnavailable: the compiler is not installed, or not of this JAX's version.
        CompilationFailed: it refused the program, took too long or crashed.
    """
    versions = _versions()
    if program.callbacks:
        raise CompilationFailed(
            "the program calls back into Python (debug.print, io_callback, pure_callback), which no other process can "
            "compile: take the callbacks out to verify it"
        )
    if program.partitions > target.size:
        raise CompilationFailed(f"the program is for {program.partitions} devices, the cluster has {target.size}")
    details = {key: value for key, value in asdict(program).items() if key not in ("module", "callbacks", "mesh")}
    request = {
        "config": target.config,
        "topology": target.topology,
        "program": details,
        "options": dict(options),
    }
    kept = _kept_file(program.module, json.dumps([request, versions, _FORMAT], sort_keys=True))
    answer = _remembered(kept)
    if answer is not None:
        return Compiled(**answer, cached=True)
    answer = _ask(program.module, request, timeout_seconds)
    if "refused" in answer:
        raise CompilationFailed(f"XLA's GPU compiler refused the program: {answer['refused']}")
    _remember(kept, answer)
    return Compiled(**answer)


def _versions() -> dict[str, str]:
    """Of all that the answer depends on."""
    found = {}
    for name in ("jaxlib", *_PLUGINS):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    plugins = [name for name in _PLUGINS if name in found]
    if not plugins:
        raise WitnessUnavailable(
            "XLA's GPU compiler is not installed: pip install 'sbpjax[verify]' (two wheels, 130 MB; no GPU, driver or "
            "CUDA is needed)"
        )
    plugin = plugins[0]
    if found[plugin] != found["jaxlib"]:
        pjrt = plugin.replace("plugin", "pjrt")
        raise WitnessUnavailable(
            f"{plugin} {found[plugin]} is not for jaxlib {found['jaxlib']}: "
            f"pip install {plugin}=={found['jaxlib']} {pjrt}=={found['jaxlib']}"
        )
    return found


def _ask(module: bytes, request: Mapping[str, Any], timeout_seconds: float | None) -> dict[str, Any]:
    """Run the worker on one request."""
    try:
        with tempfile.TemporaryDirectory(prefix="sbpjax-verify-") as name:
            folder = Path(name)
            (folder / "program.mlirbc").write_bytes(module)
            (folder / "request.json").write_text(json.dumps(request))
            with (folder / "log").open("wb") as log:
                status = _run(folder, log, timeout_seconds)
            answer = folder / "answer.json"
            if status == 0 and answer.exists():
                return json.loads(answer.read_text())
            raise CompilationFailed(_crash(status, (folder / "log").read_text(errors="replace")))
    except OSError as problem:
        raise CompilationFailed(
            f"the program could not be handed to the compiler in {tempfile.gettempdir()} ({problem}); make room there, "
            "or set TMPDIR to another folder"
        ) from problem


def _run(folder: Path, log: Any, timeout_seconds: float | None) -> int:
    """Run the worker to its end and return its exit status; it is ended with us."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sbpjax.witness.worker", str(folder)],
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,  # the compiler's threads and children end with it
    )
    try:
        return process.wait(timeout_seconds)
    except subprocess.TimeoutExpired as problem:
        raise CompilationFailed(
            f"XLA's GPU compiler did not finish within {timeout_seconds:g} s and was stopped; give it longer, or "
            "verify a smaller program (fewer layers, or a scan over them)"
        ) from problem
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _environment() -> dict[str, str]:
    """Ours, without what would have the worker's JAX act on this process's flags or touch real GPUs."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("XLA_", "JAX_", "CUDA_VISIBLE"))}
    found = [entry for entry in sys.path if entry]
    return inherited | {
        "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONPATH": os.pathsep.join(found),
    }


def _crash(status: int, log: str) -> str:
    last = "\n".join(log.strip().splitlines()[-12:])
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    remedy = " (out of memory?)" if status == -signal.SIGKILL else ""
    return f"XLA's GPU compiler {how}{remedy}. Its last words:\n{last or '(none)'}"


def _kept_file(module: bytes, request: str) -> Path | None:
    """Where the answer to a request is kept; None: nowhere."""
    folder = os.environ.get(CACHE_VARIABLE)
    if folder == "":
        return None
    root = Path(folder) if folder else user_cache_path("sbpjax")
    return root / "verify" / f"{hashlib.sha256(module + request.encode()).hexdigest()}.json.gz"


def _remembered(kept: Path | None) -> dict[str, Any] | None:
    if kept is None:
        return None
    try:
        with gzip.open(kept, "rt", encoding="utf-8") as file:
            answer = json.load(file)
        kept.touch()
    except (OSError, EOFError, ValueError):  # not there, or damaged: ask again
        return None
    return answer


def _remember(kept: Path | None, answer: Mapping[str, Any]) -> None:
    """Keep an answer and forget those that were not asked for in the longest time. A full disk is no reason to fail."""
    if kept is None:
        return
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as own:
            part = Path(own) / kept.name
            part.write_bytes(gzip.compress(json.dumps(answer).encode(), compresslevel=4))
            part.replace(kept)
        oldest_first = sorted(kept.parent.glob("*.json.gz"), key=lambda path: path.stat().st_mtime)
        for path in oldest_first[:-_CACHED_FILES]:
            path.unlink(missing_ok=True)
    except OSError:
        return
