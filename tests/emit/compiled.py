"""What the compiler made of an emitted program: its collectives, and what the layout says they should be."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from sbpjax.boxing import COLLECTIVES, route
from sbpjax.cluster import Links
from sbpjax.layout import BodyLayout, Layout, scope_name
from sbpjax.program.graph import Constant, Graph
from sbpjax.program.program import Program

_KINDS = {
    "all-reduce": "all_reduce",
    "reduce-scatter": "reduce_scatter",
    "all-gather": "all_gather",
    "all-to-all": "all_to_all",
    "collective-permute": "permute",
}
_INSTRUCTION = re.compile(rf" ({'|'.join(_KINDS)})(?:-start)?\(.*op_name=\"([^\"]*)\"")
_SCOPE = re.compile(r"sbp(?:\.o\d+)*\.t\d+\.v\d+")


def compiled_collectives(hlo: str) -> Counter[tuple[str, str]]:
    """(scope, kind) of every collective in optimised HLO; the scope is empty for one that is no boxing.

    Collectives that the compiler combined count each: it joins their names.
    """
    found: Counter[tuple[str, str]] = Counter()
    for kind, op_name in _INSTRUCTION.findall(hlo):
        for scope in _SCOPE.findall(op_name) or [""]:
            found[scope, _KINDS[kind]] += 1
    return found


def planned_collectives(program: Program, layout: Layout, links: Links) -> Counter[tuple[str, str]]:
    """(scope, kind) of every collective of the layout."""
    return Counter(_planned(program.graph, layout.body, links, ()))


def _planned(graph: Graph, layout: BodyLayout, links: Links, path: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    for t, v in sorted(_read(graph, layout)):
        source, target = layout.boxed(t, v)
        tensor = graph.tensors[t]
        for step in route(source, target, tensor.shape, tensor.itemsize, links).steps:
            if step.kind in COLLECTIVES:
                yield scope_name(path, t, v), step.kind
    for i, body in layout.bodies.items():
        inner = graph.ops[i].body
        assert inner is not None
        yield from _planned(inner, body, links, (*path, i))


def _read(graph: Graph, layout: BodyLayout) -> set[tuple[int, int]]:
    """The boxed versions that something reads, and those that they are boxed from."""
    wanted = [
        (operand, version)
        for operands, versions in [
            *((op.inputs, used) for op, used in zip(graph.ops, layout.uses, strict=True)),
            (graph.outputs, layout.results),
        ]
        for operand, version in zip(operands, versions, strict=True)
        if not isinstance(operand, Constant)
    ]
    found = set()
    for t, v in wanted:
        while (parent := layout.versions[t][v].parent) is not None:
            found.add((t, v))
            v = parent
    return found
