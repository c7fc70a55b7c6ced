"""A layout as compact text: tables of distinct placements and signatures, and per tensor and op an index into them.

A model of 40,000 ops makes a few hundred distinct placements and signatures, so the long parts are strings of small
numbers that YAML passes through untouched:

    placements: one a line, `2 data=S(0)`: rank and placement
    signatures: one a line, `3,0>5`: placements of operands and results
    versions:   one word a tensor, `3` or `3,5<0,7<1`: each version's placement, and the version that it is boxed from
    uses:       one word an op, `0,1`: the version of each operand; `-` for none
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from sbpjax.layout import BodyLayout, Layout, Version
from sbpjax.rules.rule import Signature
from sbpjax.sbp import MeshShape, Placement

T = TypeVar("T", bound=Hashable)

WORDS_PER_LINE = 24


class _Table(Generic[T]):
    """Numbers distinct values in the order in which they turn up."""

    def __init__(self) -> None:
        self.numbers: dict[T, int] = {}

    def __getitem__(self, value: T) -> int:
        return self.numbers.setdefault(value, len(self.numbers))


def encode(layout: Layout) -> dict[str, Any]:
    """Plain data that `decode` reads back; the inputs' placements and the mesh, which stand elsewhere, left out."""
    placements: _Table[Placement] = _Table()
    signatures: _Table[Signature] = _Table()
    body = _encode_body(layout.body, placements, signatures)
    outputs = _words(placements[p] for p in layout.outputs)
    lines = [
        f"{','.join(str(placements[p]) for p in s.operands)}>{','.join(str(placements[p]) for p in s.results)}"
        for s in signatures.numbers
    ]
    return {
        "placements": [f"{p.rank} {p}" for p in placements.numbers],
        "signatures": lines,
        "outputs": outputs,
        "compiler_options": dict(layout.compiler_options),
        "body": body,
    }


def decode(data: Mapping[str, Any], mesh: MeshShape, inputs: Sequence[Placement]) -> Layout:
    """The layout again.

    Raises:
        ValueError, KeyError, IndexError, TypeError: the data are not what `encode` makes.
    """
    placements = [placement(line) for line in data["placements"]]
    signatures = []
    for line in data["signatures"]:
        operands, results = line.split(">")
        signatures.append(Signature(_pick(placements, operands, ","), _pick(placements, results, ",")))
    return Layout(
        mesh=dict(mesh),
        inputs=tuple(inputs),
        outputs=_pick(placements, data["outputs"]),
        body=_decode_body(data["body"], placements, signatures),
        compiler_options=dict(data["compiler_options"]),
    )


def placement(line: str) -> Placement:
    """Read `2 data=S(0)`: a rank and a placement."""
    rank, _, text = line.partition(" ")
    return Placement.parse(text, int(rank))


def _encode_body(body: BodyLayout, placements: _Table[Placement], signatures: _Table[Signature]) -> dict[str, Any]:
    def version(v: Version) -> str:
        return str(placements[v.placement]) + ("" if v.parent is None else f"<{v.parent}")

    return {
        "versions": _words(",".join(map(version, versions)) for versions in body.versions),
        "signatures": _words(signatures[s] for s in body.signatures),
        "uses": _words(",".join(map(str, used)) or "-" for used in body.uses),
        "results": _words(body.results),
        "result_placements": _words(placements[p] for p in body.result_placements),
        "bodies": {str(i): _encode_body(inner, placements, signatures) for i, inner in body.bodies.items()},
    }


def _decode_body(
    data: Mapping[str, Any], placements: Sequence[Placement], signatures: Sequence[Signature]
) -> BodyLayout:
    # Few words are distinct, and versions are frozen: each is made once.
    versions = {word: _versions(word, placements) for word in set(data["versions"].split())}
    uses = {word: () if word == "-" else tuple(map(int, word.split(","))) for word in set(data["uses"].split())}
    return BodyLayout(
        versions=tuple(versions[word] for word in data["versions"].split()),
        signatures=_pick(signatures, data["signatures"]),
        uses=tuple(uses[word] for word in data["uses"].split()),
        results=tuple(map(int, data["results"].split())),
        result_placements=_pick(placements, data["result_placements"]),
        bodies={int(i): _decode_body(inner, placements, signatures) for i, inner in data["bodies"].items()},
    )


def _versions(word: str, placements: Sequence[Placement]) -> tuple[Version, ...]:
    made = []
    for item in word.split(","):
        number, _, parent = item.partition("<")
        made.append(Version(placements[int(number)], int(parent) if parent else None))
    return tuple(made)


def _words(items: Iterable[object]) -> str:
    words = [str(item) for item in items]
    return "\n".join(" ".join(words[k : k + WORDS_PER_LINE]) for k in range(0, len(words), WORDS_PER_LINE))


def _pick(table: Sequence[T], numbers: str, separator: str | None = None) -> tuple[T, ...]:
    return tuple(table[int(number)] for number in numbers.split(separator) if number)
