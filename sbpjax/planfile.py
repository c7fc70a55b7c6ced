"""The plan file: text that people read and sbpjax reads back, and notices when it was changed.

It is YAML. What a person wants to know stands first: the function, the cluster, the mesh, the time and memory of a
step, where every argument lies. The tables of the layout follow, and on the last line a hash of all of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import yaml

from sbpjax import files, layouttext
from sbpjax.cluster import Cluster
from sbpjax.cost.estimate import Collective, Estimate, Indivisible, Unsplit
from sbpjax.errors import InvalidPlanFile
from sbpjax.layout import Layout
from sbpjax.program.graph import Source
from sbpjax.sbp import Placement

T = TypeVar("T")

FORMAT = 1
KEYS = (
    "sbpjax_plan",
    "sbpjax_version",
    "name",
    "strategy",
    "hardware",
    "mesh",
    "estimate",
    "placements",
    "ranks",
    "relaxed",
    "fingerprint",
    "collectives",
    "unsplit",
    "indivisible",
    "layout",
    "cluster",
    "content_sha256",
)
_TABLES: Mapping[str, type] = {"collectives": Collective, "unsplit": Unsplit, "indivisible": Indivisible}
_HEAD = "# A plan of sbpjax, for sbpjax.Plan.load(path). Made to be read; a change by hand is refused.\n"


def _written_by() -> str:
    try:
        return version("sbpjax")
    except PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True, eq=False)
class Saved:
    """What a plan file holds.

    Attributes:
        name: the planned function's name.
        fingerprint: of its program.
        cluster: the hardware, in full.
        strategy: the strategy's name.
        layout: the placement of every tensor.
        estimate: the figures.
        paths: the path of each graph input.
        relaxed: rules of the strategy that gave way: path, axis, reason.
        sbpjax_version: which sbpjax wrote it.
    """

    name: str
    fingerprint: str
    cluster: Cluster
    strategy: str
    layout: Layout
    estimate: Estimate
    paths: tuple[str, ...]
    relaxed: Sequence[tuple[str, str, str]] = ()
    sbpjax_version: str = _written_by()

    @property
    def placements(self) -> dict[str, Placement]:
        """By path, the placement of every argument at rest."""
        return dict(zip(self.paths, self.layout.inputs, strict=True))


def save(path: str | os.PathLike[str], saved: Saved) -> None:
    """Write a plan file: either all of it or, after an error or a crash, none of it.

    A link keeps pointing to the file that it points to. What is no file (a pipe, /dev/stdout) is written into, never
    replaced.

    Raises:
        InvalidPlanFile: it cannot be written there.
    """
    body = _body(saved)
    text = _HEAD + yaml.dump(
        {**body, "content_sha256": _hash(body)},
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=1 << 30,
    )
    try:
        files.write(path, text)
    except (OSError, ValueError) as error:
        raise InvalidPlanFile(
            f"cannot write the plan file {str(path)!r}: {files.reason(error)}; give the name of a file in a "
            "folder that exists and can be written to"
        ) from error


def load(path: str | os.PathLike[str]) -> Saved:
    """Read a plan file.

    Raises:
        InvalidPlanFile: it cannot be read, is truncated, was edited, is of another format, or is no plan file; the
            message gives the line and the remedy.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidPlanFile(f"cannot read the plan file {path}: {error}") from error
    body = _checked(path, text)
    at = partial(_section, path, text, body)
    ranks = at("ranks", lambda words: [int(word) for word in words.split()])
    inputs = at(
        "placements", lambda placed: [Placement.parse(p, r) for p, r in zip(placed.values(), ranks, strict=True)]
    )
    tables = {key: at(key, partial(_from_table, kind)) for key, kind in _TABLES.items()}
    return Saved(
        name=body["name"],
        fingerprint=body["fingerprint"],
        cluster=at("cluster", Cluster.from_dict),
        strategy=body["strategy"],
        layout=at("layout", lambda data: layouttext.decode(data, body["mesh"], inputs)),
        estimate=at("estimate", lambda figures: Estimate(**(figures | tables))),
        paths=tuple(body["placements"]),
        relaxed=at("relaxed", lambda rows: tuple((path, axis, reason) for path, axis, reason in rows)),
        sbpjax_version=body["sbpjax_version"],
    )


def _body(saved: Saved) -> dict[str, Any]:
    """The file's content, hash apart, in the order in which it is written."""
    estimate = {f.name: _plain(getattr(saved.estimate, f.name)) for f in fields(Estimate) if f.name not in _TABLES}
    return {
        "sbpjax_plan": FORMAT,
        "sbpjax_version": saved.sbpjax_version,
        "name": saved.name,
        "strategy": saved.strategy,
        "hardware": saved.cluster.name,
        "mesh": _plain(saved.layout.mesh),
        "estimate": estimate,
        "placements": {path: str(placement) for path, placement in saved.placements.items()},
        "ranks": " ".join(str(placement.rank) for placement in saved.layout.inputs),
        "relaxed": _plain(saved.relaxed),
        "fingerprint": saved.fingerprint,
        **{key: _to_table(kind, getattr(saved.estimate, key)) for key, kind in _TABLES.items()},
        "layout": layouttext.encode(saved.layout),
        "cluster": _plain(saved.cluster.to_dict()),
    }


def _to_table(kind: type, rows: Sequence[Any]) -> dict[str, Any]:
    """The names of the columns, and one row a line, in JSON (which is read much faster than YAML)."""
    columns = [f.name for f in fields(kind)]
    lines = [json.dumps([_plain(getattr(row, c)) for c in columns]) for row in rows]
    return {"columns": " ".join(columns), "rows": "\n".join(lines)}


def _from_table(kind: type, table: Mapping[str, str]) -> tuple[Any, ...]:
    def value(column: str, plain: Any) -> Any:
        return Source(*plain) if column == "source" else tuple(plain) if isinstance(plain, list) else plain

    columns = table["columns"].split()
    rows = [json.loads(line) for line in table["rows"].splitlines()]
    return tuple(kind(**{c: value(c, plain) for c, plain in zip(columns, row, strict=True)}) for row in rows)


def _plain(value: Any) -> Any:
    """The value in terms of dicts, lists, text and Python's own numbers."""
    match value:
        case Source():
            return [value.module, value.phase, value.location]
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case np.generic():
            return value.item()
        case _:
            return value


def _hash(body: Mapping[str, Any]) -> str:
    """Of the content, not of its spelling: line ends and comments may change."""
    return hashlib.sha256(json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()


def _checked(path: str | os.PathLike[str], text: str) -> dict[str, Any]:
    """The content, once it is known to be whole, of this format, and unchanged."""
    last = text.count("\n") + (not text.endswith("\n"))
    whole = re.search(r"^content_sha256: '?[0-9a-f]{64}'?\s*\Z", text, re.MULTILINE)
    truncated = (
        f"{path}, line {last}: the file is truncated: it ends without its content_sha256; copy it anew, or plan again"
    )
    try:
        body = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        if re.search("^sbpjax_plan:", text, re.MULTILINE) and not whole:
            raise InvalidPlanFile(truncated) from error
        mark = getattr(error, "problem_mark", None)
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        raise InvalidPlanFile(f"{where}: not YAML: {getattr(error, 'problem', None) or error}") from error
    if not isinstance(body, dict) or "sbpjax_plan" not in body:
        raise InvalidPlanFile(f"{path}, line 1: not a plan file: the key sbpjax_plan is missing; plan.save writes one")
    if body["sbpjax_plan"] != FORMAT:
        line = _line_of(text, "sbpjax_plan")
        raise InvalidPlanFile(
            f"{path}, line {line}: written in format {body['sbpjax_plan']} by sbpjax {body.get('sbpjax_version')}; "
            f"this sbpjax ({_written_by()}) reads format {FORMAT}: plan again, or use the version that wrote it"
        )
    if not whole:
        raise InvalidPlanFile(truncated)
    missing = [key for key in KEYS if key not in body]
    if missing:
        raise InvalidPlanFile(f"{path}, line {last}: the file was edited: the key {missing[0]} is missing; plan again")
    if _hash({key: value for key, value in body.items() if key != "content_sha256"}) != body["content_sha256"]:
        raise InvalidPlanFile(
            f"{path}, line {_line_of(text, 'content_sha256')}: the file was edited: its content does not have the hash "
            "that stands here; undo the change, or pin what you want in a strategy and plan again"
        )
    return body


def _section(
    path: str | os.PathLike[str], text: str, body: Mapping[str, Any], key: str, decode: Callable[[Any], T]
) -> T:
    """Decode one key of the file; whatever is wrong is told with its line."""
    try:
        return decode(body[key])
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise InvalidPlanFile(
            f"{path}, line {_line_of(text, key)}: {key} is not what sbpjax writes there ({error}); plan again"
        ) from error


def _line_of(text: str, key: str) -> int:
    found = re.search(rf"^{key}:", text, re.MULTILINE)
    return text.count("\n", 0, found.start()) + 1 if found else 1


# libyaml's where it is there: ten times faster.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BaseDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_BaseDumper):
    """Writes text of several lines as a block of lines."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: Any, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)
