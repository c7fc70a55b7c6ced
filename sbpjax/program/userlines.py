"""The line in the user's own code that an equation came from."""

from __future__ import annotations

import functools
import sysconfig
from pathlib import Path
from typing import Any, Final

import flax
import jax
import jaxlib
import optax

from sbpjax import compat

_PACKAGE: Final = Path(__file__).parent.parent
_LIBRARIES: Final = tuple(package.__path__[0] for package in (jax, jaxlib, flax, optax))
_OURS: Final = (str(_PACKAGE / "program"), str(_PACKAGE / "pinning.py"), str(_PACKAGE / "compat.py"))
_PYTHON: Final = sysconfig.get_paths()["stdlib"]
_INSTALLED: Final = tuple({sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]})


@functools.cache
def is_users(file: str) -> bool:
    """Whether a source file is neither Python's, JAX's, Flax's nor Optax's, nor of our own machinery."""
    if file.startswith(("<frozen", *_LIBRARIES, *_OURS)):
        return False
    return not file.startswith(_PYTHON) or file.startswith(_INSTALLED)


def innermost_user_line(eqn: Any) -> str:
    """`train.py:41`, or nothing where the equation has no frame in the user's code."""
    for code, instruction in compat.code_frames(eqn):
        if is_users(code.co_filename):
            return _line(code, instruction)
    return ""


@functools.lru_cache(maxsize=100_000)
def _line(code: Any, instruction: int) -> str:
    return f"{Path(code.co_filename).name}:{compat.line_number(code, instruction)}"
