"""Patterns over paths: `state.params.*.kernel`, `**.{query,key}.kernel`, `re:.*kernel`.

`*` is any text within one part of a path, `**` any number of whole parts, `?` one character, `{a,b}` either. A pattern
must match the whole path. After `re:` stands a regular expression instead.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import lru_cache


@lru_cache(maxsize=4096)
def compiled(pattern: str, separator: str = ".") -> re.Pattern[str]:
    """The pattern as a regular expression for `fullmatch`.

    Raises:
        ValueError: a regular expression that is none, or a brace that is not closed.
    """
    if pattern.startswith("re:"):
        try:
            return re.compile(pattern[3:])
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    sep, part = re.escape(separator), f"[^{re.escape(separator)}]"
    pieces = re.findall(r"\*\*|[*?{},]|[^*?{},]+", pattern)
    depth, out = 0, ""
    for k, piece in enumerate(pieces):
        match piece:
            case "**":
                # A separator next to `**` belongs to it: `**.kernel` also matches a lone `kernel`.
                if k + 1 < len(pieces) and pieces[k + 1].startswith(separator):
                    out += f"(?:{part}+{sep})*"
                    pieces[k + 1] = pieces[k + 1].removeprefix(separator)
                elif out.endswith(sep):
                    out = out.removesuffix(sep) + f"(?:{sep}{part}+)*"
                else:
                    out += ".*"
            case "*":
                out += f"{part}*"
            case "?":
                out += part
            case "{":
                out, depth = out + "(?:", depth + 1
            case "}":
                out, depth = out + ")", depth - 1
            case ",":
                out += "|" if depth else ","
            case _:
                out += re.escape(piece)
    if depth:
        raise ValueError(f"{pattern!r}: braces that do not match")
    return re.compile(out)


def matches(patterns: Iterable[str], path: str, separator: str = ".") -> bool:
    """Whether any of the patterns matches the whole path."""
    return any(compiled(p, separator).fullmatch(path) for p in patterns)


def nearest(pattern: str, paths: Iterable[str], separator: str = ".") -> str | None:
    """The path that looks most like the pattern, for `did you mean`."""
    known = sorted(set(paths))
    bare = pattern.removeprefix("re:").replace(f"**{separator}", "").replace("*", "")
    found = difflib.get_close_matches(bare, known, n=1, cutoff=0.6)
    if not found:
        # A pattern may be much shorter than any path: compare it with the paths' ends.
        width = bare.count(separator) + 1
        tails = {separator.join(path.split(separator)[-width:]): path for path in reversed(known)}
        near = difflib.get_close_matches(bare, tails, n=1, cutoff=0.5)
        found = [tails[near[0]]] if near else []
    return found[0] if found else None
