"""Text files of ours: written all or not at all, and known to be writable before work is spent on their content."""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path


def write(path: str | os.PathLike[str], text: str) -> None:
    """Write a file: either all of it or, after an error or a crash, none of it.

    A link keeps pointing to the file that it points to. What is no file (a pipe, /dev/stdout) is written into, never
    replaced.

    Raises:
        OSError, ValueError: it cannot be written there.
    """
    path = Path(path)
    if _is_device(path):
        path.write_text(text, encoding="utf-8")
        return
    target = _target(path)
    draft = _draft_of(target)
    try:
        with open(draft, "x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def why_not_writable(path: str | os.PathLike[str]) -> str | None:
    """Why a file cannot be written there, or None where it can, as far as is known before it is; nothing is changed."""
    path = Path(path)
    try:
        if path.exists() and not path.is_dir():
            return None if os.access(path, os.W_OK) else os.strerror(errno.EACCES)
        draft = _draft_of(_target(path))
        draft.touch(exist_ok=False)
        draft.unlink()
    except (OSError, ValueError) as error:
        return reason(error)
    return None


def reason(error: Exception) -> str:
    """What went wrong with a file, without the path and the number."""
    return getattr(error, "strerror", None) or str(error)


def _is_device(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _target(path: Path) -> Path:
    """The file itself, links followed."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return target


def _draft_of(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
