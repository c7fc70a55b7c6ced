"""What the report of a plan says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from sbpjax.cluster import Cluster
from sbpjax.cost.estimate import Collective, Estimate
from sbpjax.layout import Layout
from sbpjax.program.program import Program
from sbpjax.report.document import MOST_ROWS, Document, Section, cut
from sbpjax.report.patterns import merge, star
from sbpjax.report.units import format_bytes, format_flops, format_seconds, format_share
from sbpjax.sbp import Placement
from sbpjax.strategy import Relaxed


class Planned(Protocol):
    """What the report reads of a plan."""

    @property
    def name(self) -> str:
        """Of the function."""
        ...

    @property
    def cluster(self) -> Cluster:
        """What it is for."""
        ...

    @property
    def strategy(self) -> str:
        """The strategy's name."""
        ...

    @property
    def mesh_shape(self) -> dict[str, int]:
        """Axis to size."""
        ...

    @property
    def gap(self) -> float:
        """Step over bound, less 1."""
        ...

    @property
    def layout(self) -> Layout:
        """Every tensor's placements."""
        ...

    @property
    def estimate(self) -> Estimate:
        """The figures."""
        ...

    @property
    def placements(self) -> Mapping[str, Placement]:
        """Of the arguments, by path."""
        ...

    @property
    def program(self) -> Program | None:
        """The traced function; None where it is not at hand."""
        ...

    @property
    def relaxed(self) -> Sequence[Relaxed]:
        """Rules that gave way."""
        ...


def document(plan: Planned) -> Document:
    """All that a plan says of itself."""
    made = (memory, arguments, intermediates, communication, unsplit, indivisible, relaxed)
    sections = [section for make in made if (section := make(plan)).rows or section.note]
    return Document(headline(plan), facts(plan), sections)


def headline(plan: Planned) -> str:
    """What was planned, on what."""
    mesh = " × ".join(f"{axis}={size}" for axis, size in plan.mesh_shape.items())
    return f"{plan.name} on {plan.cluster.name}, mesh {mesh}, strategy {plan.strategy}"


def facts(plan: Planned) -> list[tuple[str, str]]:
    """The figures that matter most, as (name, value)."""
    e = plan.estimate
    exposed = sum(c.count * c.exposed_seconds for c in e.collectives)
    step = f"{format_seconds(e.step_seconds)}   compute {format_seconds(e.compute_seconds)}, "
    step += f"communication not hidden {format_seconds(exposed)}"
    bound = f"{format_seconds(e.bound_seconds)}   gap {format_share(plan.gap)}, {e.method}"
    if e.cut:
        bound += "; cut short by the clock: another run may find another plan"
    rows = [("step", step), ("bound", bound)]
    if e.simulated_seconds is not None:
        rows.append(("simulated", f"{format_seconds(e.simulated_seconds)}   with the schedule's overlap"))
    share = format_share(e.peak_bytes / e.limit_bytes) if e.limit_bytes else "none"
    rows.append(("memory", f"{format_bytes(e.peak_bytes)} of {format_bytes(e.limit_bytes)} a device ({share})"))
    return rows


def memory(plan: Planned) -> Section:
    """The peak, by what holds it."""
    e = plan.estimate
    held = sorted(((size, name) for name, size in e.memory.items() if size), reverse=True)
    rows = [(name, format_bytes(size), format_share(size / e.peak_bytes)) for size, name in held]
    return Section("Memory at its peak, one device", ("held by", ">bytes", ">share"), cut(rows))


def arguments(plan: Planned) -> Section:
    """How every argument lies at rest, equal ones merged."""
    program, mesh = plan.program, plan.mesh_shape
    axes = [axis for axis, size in mesh.items() if size > 1]
    paths = list(plan.placements)
    if program is None:
        rows = [(name, *_per_axis(plan.placements[paths[found[0]]], axes)) for name, found in _alike(plan, paths)]
        note = "Shapes and bytes are known once the plan is bound to its function."
        return Section("Arguments", ("path", *axes), cut(rows), note)
    tensors = [program.graph.tensors[t] for t in program.graph.inputs]
    kinds = [(t.shape, str(t.aval.dtype)) for t in tensors]
    sized = []
    for name, found in _alike(plan, paths, kinds):
        tensor, placement = tensors[found[0]], plan.placements[paths[found[0]]]
        size = int(len(found) * tensor.bytes * placement.fraction(mesh))
        shape = f"{tensor.aval.dtype}{list(tensor.shape)}"
        count = f"{len(found)} × " if len(found) > 1 else ""
        sized.append((size, (name, count + shape, *_per_axis(placement, axes), format_bytes(size))))
    shown, rest = sized[:MOST_ROWS], sized[MOST_ROWS:]
    if rest:
        # Large tables lose their small rows, not their late ones.
        large = sorted(sized, key=lambda row: -row[0])[:MOST_ROWS]
        shown, rest = [row for row in sized if row in large], [row for row in sized if row not in large]
    rows = [row for _, row in shown]
    if rest:
        rows.append((f"{len(rest)} smaller rows", "", *("" for _ in axes), format_bytes(sum(size for size, _ in rest))))
    return Section("Arguments", ("path", "shape", *axes, ">bytes a device"), tuple(rows))


def intermediates(plan: Planned) -> Section:
    """Which placements hold the bytes of what ops make, loop trips not counted."""
    if plan.program is None:
        return Section("Intermediates", (), ())
    axes = [axis for axis, size in plan.mesh_shape.items() if size > 1]
    held: dict[tuple[str, ...], list[int]] = {}
    for tensor, placement in _made(plan.program.graph, plan.layout.body):
        entry = held.setdefault(_per_axis(placement, axes), [0, 0])
        entry[0] += tensor.bytes
        entry[1] += 1
    total = sum(size for size, _ in held.values()) or 1
    ordered = sorted(held.items(), key=lambda item: -item[1][0])
    rows = [(*key, str(count), format_share(size / total)) for key, (size, count) in ordered]
    return Section("Intermediates", (*axes, ">tensors", ">share of bytes"), cut(rows, 8))


def communication(plan: Planned) -> Section:
    """Collectives, equal ones together, the dearest first."""
    found = plan.estimate.collectives
    places = ((star(c.source.module) or "top level", (c.kind, c.axes, c.change, c.source.phase)) for c in found)
    groups = [(where, [found[i] for i in members]) for where, members in merge(places, "/")]
    groups.sort(key=lambda group: -sum(c.count * c.exposed_seconds for c in group[1]))
    rows = [_collective(where, members) for where, members in groups[:MOST_ROWS]]
    if rest := [c for _, members in groups[MOST_ROWS:] for c in members]:
        rows.append((f"{len(groups) - MOST_ROWS} smaller rows", "", "", "", *_totals(rest)))
    if len(rows) > 1:
        rows.append(("total", "", "", "", *_totals(found)))
    columns = ("collective", "axes", "change", "where", ">count", ">bytes", ">time", ">not hidden")
    return Section("Communication in one step", columns, tuple(rows), "" if rows else "Nothing is communicated.")


def unsplit(plan: Planned) -> Section:
    """Ops that every device runs whole."""
    rows = [
        (u.primitive, str(u.count), format_seconds(u.seconds), format_flops(u.flops), u.reason, str(u.source))
        for u in plan.estimate.unsplit
    ]
    columns = ("op", ">count", ">time", ">work", "why", "dearest at")
    return Section("Not split: run whole on every device", columns, cut(rows))


def indivisible(plan: Planned) -> Section:
    """Arguments that stay whole because an axis does not divide them."""
    found = plan.estimate.indivisible
    kinds = [(i.shape, i.dim, i.axis, i.bytes_lost, i.would_do) for i in found]
    rows = []
    for name, members in merge(zip((i.path for i in found), kinds, strict=True)):
        i = found[members[0]]
        lost = format_bytes(i.bytes_lost * len(members))
        rows.append((name, str(list(i.shape)), str(i.dim), i.axis, lost, f"{i.shape[i.dim]} -> {i.would_do}"))
    columns = ("path", "shape", ">dimension", "axis", ">bytes lost", "size that would do")
    return Section("Whole because the axis does not divide them", columns, cut(rows))


def relaxed(plan: Planned) -> Section:
    """Rules of the strategy that gave way."""
    rows = []
    found = list(plan.relaxed)
    for name, members in merge((r.path, (r.axis, r.reason)) for r in found):
        rows.append((name, found[members[0]].axis, found[members[0]].reason))
    return Section("Rules of the strategy that gave way", ("path", "axis", "why"), cut(rows))


def _alike(plan: Planned, paths: Sequence[str], kinds: Sequence[Any] = ()) -> list[tuple[str, list[int]]]:
    """Arguments that agree in kind and placement, as patterns."""
    return merge((path, (kinds[i] if kinds else None, plan.placements[path])) for i, path in enumerate(paths))


def _per_axis(placement: Placement, axes: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(placement.on(axis)) for axis in axes)


def _made(graph: Any, body: Any) -> Iterable[tuple[Any, Placement]]:
    for i, op in enumerate(graph.ops):
        for t in op.outputs:
            yield graph.tensors[t], body.versions[t][0].placement
        if op.body is not None:
            yield from _made(op.body, body.bodies[i])


def _collective(where: str, members: Sequence[Collective]) -> tuple[str, ...]:
    c = members[0]
    return (
        c.kind.replace("_", "-"),
        " ".join(c.axes),
        change(c.change, c.axes),
        f"{where} ({c.source.phase})",
        *_totals(members),
    )


def change(text: str, axes: Sequence[str]) -> str:
    """What a boxing `data=P(sum) -> data=S(0)` changes on the axes of one of its collectives: `P(sum) → S(0)`."""
    before, after = (dict(word.split("=") for word in side.split() if "=" in word) for side in text.split(" -> "))
    pairs = dict.fromkeys((before.get(axis, "B"), after.get(axis, "B")) for axis in axes)
    return ", ".join(f"{a} → {b}" for a, b in pairs)


def _totals(members: Sequence[Collective]) -> tuple[str, str, str, str]:
    count = sum(c.count for c in members)
    size = sum(c.count * c.bytes for c in members)
    seconds = sum(c.count * c.seconds for c in members)
    exposed = sum(c.count * c.exposed_seconds for c in members)
    return str(count), format_bytes(size), format_seconds(seconds), format_seconds(exposed)
