"""Text as batches of tokens: bytes of files, cut into windows, shuffled by grain.

The same sources, seed and batch give the same batches, in any process, on any number of devices.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from sbpjax.errors import InvalidRecipe
from sbpjax.training.recipe import Data

if TYPE_CHECKING:
    import grain

NOT_LIBRARY: Final = frozenset({"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__"})
"""Folders of the standard library's path that hold something else, or its own tests."""


@dataclass(frozen=True, eq=False)
class Text:
    """Bytes to train on.

    Attributes:
        tokens: `uint8[n]`.
        files: how many files they come from.
        origin: where they come from, for the report.
    """

    tokens: NDArray[np.uint8]
    files: int
    origin: str


class Windows:
    """Windows of `length` tokens that do not overlap, each with the tokens that follow; grain reads them by index."""

    def __init__(self, tokens: NDArray[np.uint8], length: int) -> None:
        self._tokens = tokens
        self._length = length

    def __len__(self) -> int:
        return (len(self._tokens) - 1) // self._length

    def __getitem__(self, index: int) -> dict[str, NDArray[np.int32]]:
        """`{"tokens": int32[length], "targets": int32[length]}`; targets are the tokens one place on."""
        start = int(index) * self._length
        window = self._tokens[start : start + self._length + 1].astype(np.int32)
        return {"tokens": window[:-1], "targets": window[1:]}


def read_text(data: Data) -> Text:
    """Read what a recipe trains on, files in the order of their paths.

    Raises:
        InvalidRecipe: there is no such file or folder, or nothing in it matches.
    """
    if data.source == "stdlib":
        root = Path(sysconfig.get_path("stdlib"))
        origin = "the Python standard library"
    else:
        root = Path(data.source).expanduser()
        origin = str(root)
    if root.is_file():
        paths = [root]
    elif root.is_dir():
        paths = list(_files(root, data.pattern, library=data.source == "stdlib"))
    else:
        raise InvalidRecipe(
            f"data.source: {origin} is neither a file nor a folder ({root}); give the path of your text"
        )
    chunks: list[bytes] = []
    left = data.limit
    for path in paths:
        if left is not None and left <= 0:
            break
        chunk = path.read_bytes() if left is None else path.read_bytes()[:left]
        left = None if left is None else left - len(chunk)
        chunks.append(chunk)
    tokens = np.frombuffer(b"".join(chunks), np.uint8)
    if not len(tokens):
        raise InvalidRecipe(f"data.pattern: no text in {origin} matches {data.pattern!r} ({root}); check data.pattern")
    return Text(tokens, len(chunks), origin)


def _files(root: Path, pattern: str, library: bool) -> Iterator[Path]:
    for path in sorted(root.glob(pattern), key=lambda path: path.relative_to(root).as_posix()):
        if path.is_file() and not (library and NOT_LIBRARY & set(path.relative_to(root).parts)):
            yield path


def batches(text: Text, length: int, batch: int, seed: int) -> grain.MapDataset[dict[str, NDArray[np.int32]]]:
    """Endless batches: `{"tokens": int32[batch, length], "targets": int32[batch, length]}`, by step number.

    Every epoch is shuffled anew.

    Raises:
        InvalidRecipe: the text does not fill one batch.
    """
    import grain  # slow to import, and only training needs it

    windows = Windows(text.tokens, length)
    if len(windows) < batch:
        raise InvalidRecipe(
            f"batch: {batch} sequences of {length} tokens need {batch * length + 1} bytes of text, {text.origin} has "
            f"{len(text.tokens)}; lower batch or model.length, or give more text"
        )
    return grain.MapDataset.source(windows).shuffle(seed=seed).repeat().batch(batch)
