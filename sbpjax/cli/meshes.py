"""Meshes as one writes them on a command line."""

from __future__ import annotations

import re

from sbpjax.errors import InvalidMesh


def parse_mesh(text: str | None) -> dict[str, int] | None:
    """`{"data": 2, "model": 4}` of `data=2,model=4`; None of None.

    Raises:
        InvalidMesh: the text is no such list.
    """
    if text is None:
        return None
    mesh: dict[str, int] = {}
    for part in text.split(","):
        axis, equals, size = (word.strip() for word in part.partition("="))
        if not axis.isidentifier() or not equals or not re.fullmatch("0*[1-9][0-9]*", size):
            raise InvalidMesh(f"--mesh {text}: {part!r} is no axis with a size; write data=2,model=4")
        if axis in mesh:
            raise InvalidMesh(f"--mesh {text}: axis {axis!r} comes twice; keep one")
        mesh[axis] = int(size)
    return mesh
