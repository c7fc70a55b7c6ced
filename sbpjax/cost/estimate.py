"""What the planner believes of a layout: its time, its bound, its memory, its communication."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sbpjax.program.graph import Source


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective of the emitted program.

    Attributes:
        kind: `all_reduce`, `reduce_scatter`, `all_gather`, `all_to_all` or `permute`.
        axes: the mesh axes that take part, major to minor.
        bytes: the larger of its operand and its result on one device, for one run.
        count: how often it runs in one step (loop trips).
        seconds: its time for one run, alone on its link.
        exposed_seconds: the part of it that is thought not to hide behind compute.
        tensor: the name of the tensor that is boxed.
        change: `S(0) -> B` in placements' text.
        source: the op that asked for it.
        scope: the named scope under which it is emitted.
    """

    kind: str
    axes: tuple[str, ...]
    bytes: int
    count: int
    seconds: float
    exposed_seconds: float
    tensor: str
    change: str
    source: Source
    scope: str


@dataclass(frozen=True, slots=True)
class Unsplit:
    """Ops of one primitive that had no split signature and run whole on every device.

    Attributes:
        primitive: its name.
        count: how many such ops there are (loop trips counted).
        seconds, flops, bytes: all of them together, on one device, in one step.
        reason: why: no rule for it, or which dimensions its rule needs whole or do not divide.
        source: the most expensive one.
    """

    primitive: str
    count: int
    seconds: float
    flops: float
    bytes: int
    reason: str
    source: Source


@dataclass(frozen=True, slots=True)
class Indivisible:
    """An argument or result that could not be split along a dimension because an axis does not divide it.

    Attributes:
        path: the leaf.
        shape: its global shape.
        dim: the dimension.
        axis: the mesh axis that does not divide it.
        bytes_lost: what splitting would have saved on each device.
        would_do: the next larger size of the dimension that divides.
    """

    path: str
    shape: tuple[int, ...]
    dim: int
    axis: str
    bytes_lost: int
    would_do: int


@dataclass(frozen=True)
class Estimate:
    """The figures of a plan. Times are seconds of one step, bytes are on one device.

    Attributes:
        step_seconds: the search's objective: a sum over ops and boxings, each boxing at its exposed share.
        bound_seconds: no layout among those offered has a smaller objective.
        simulated_seconds: by the schedule simulator, or None where it was not run; never part of the gap.
        compute_seconds: the part of `step_seconds` that ops take.
        peak_bytes: the most that is alive at once.
        limit_bytes: the limit that was kept.
        memory: `peak_bytes` by what holds it, at the moment of the peak: `parameters`, `optimizer`, `batch`, `other`,
            `activations`, ...
        collectives: every collective of the emitted program.
        unsplit: ops that run whole on every device.
        indivisible: leaves that could not be split for want of divisibility.
        method: how the layout was found and what the bound rests on.
        cut: whether a wall-clock limit ended the search.
    """

    step_seconds: float
    bound_seconds: float
    simulated_seconds: float | None
    compute_seconds: float
    peak_bytes: int
    limit_bytes: int
    memory: Mapping[str, int]
    collectives: tuple[Collective, ...]
    unsplit: tuple[Unsplit, ...]
    indivisible: tuple[Indivisible, ...]
    method: str
    cut: bool = False
