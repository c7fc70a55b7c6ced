"""What the compiled program is seen to do: its memory, its collectives, XLA's own timeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """Where something in a compiled program comes from, as far as XLA kept it.

    Attributes:
        scope: the op name with all named scopes, `jit(step)/shard_map/sbp.t12.v1/all_gather`.
        file, line: of the user's code; empty and 0 where unknown.
    """

    scope: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class CompiledCollective:
    """One collective of the compiled program. One that XLA made of several has several parts.

    Attributes:
        name: of the instruction (the `-start` of an asynchronous pair).
        kind: `all_reduce`, `reduce_scatter`, `all_gather`, `all_to_all` or `permute`.
        axes: the mesh axes that its groups span, major to minor; empty where they are no set of axes.
        groups: the devices' positions in the mesh, group by group (source-target pairs of a permute).
        parts: for each operand the larger of operand and result, in bytes on one device, for one run.
        count: how often it runs in one step (trip counts of the loops around it).
        computation: that it stands in.
        asynchronous: whether other instructions may run between its start and its end.
        places: where it and what was merged into it come from; at least one.
    """

    name: str
    kind: str
    axes: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    parts: tuple[int, ...]
    count: int
    computation: str
    asynchronous: bool
    places: tuple[Place, ...]

    @property
    def bytes(self) -> int:
        """Of all its parts, for one run."""
        return sum(self.parts)


@dataclass(frozen=True, slots=True)
class Memory:
    """XLA's buffer assignment, in bytes on one device.

    Attributes:
        arguments, outputs: as they lie at rest.
        aliased: outputs that take over arguments' buffers.
        temporaries: the block that XLA allocates for everything in between.
        peak: the most that is in use at once, by XLA's count.
    """

    arguments: int
    outputs: int
    aliased: int
    temporaries: int
    peak: int

    @property
    def allocated(self) -> int:
        """What a device must have: arguments, results that take over none of them, temporaries."""
        return self.arguments + self.outputs - self.aliased + self.temporaries


@dataclass(frozen=True, slots=True)
class Span:
    """One instruction on XLA's timeline. Seconds from the start of the step; a loop's body at its first trip.

    Attributes:
        name: of the instruction, or of the asynchronous pair (that of its start).
        opcode: `fusion`, `custom-call`, `all-gather`, ...
        start, end: seconds.
        stream: `compute` or `communication`.
        place: where it comes from.
        depth: 0 in the entry, 1 in a loop's body, and so on.
        trips: how often it runs in one step.
        estimated_by: `xla`, or `roofline` where XLA prices an instruction at a constant and we put our own figure in.
    """

    name: str
    opcode: str
    start: float
    end: float
    stream: str
    place: Place
    depth: int = 0
    trips: int = 1
    estimated_by: str = "xla"


@dataclass(frozen=True)
class Timeline:
    """XLA's estimate of one step. It is an estimate of XLA's, not of a machine.

    Attributes:
        step_seconds: the end of the last instruction, loops multiplied by their trips.
        compute_seconds: when the compute stream is busy.
        exposed_seconds: by kind of collective, when the compute stream waits for it.
        quirk_seconds: by quirk (`transpose`, `split_k`), the part of `compute_seconds` that rests on prices which
            hardware may not share.
        spans: every instruction that takes time.
    """

    step_seconds: float
    compute_seconds: float
    exposed_seconds: Mapping[str, float]
    quirk_seconds: Mapping[str, float]
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Evidence:
    """What XLA's GPU compiler made of a program.

    Attributes:
        memory: its buffer assignment.
        collectives: all of them, in the order of the module.
        timeline: XLA's schedule; None where it knows no times for the GPU.
        compile_seconds: that XLA took.
        versions: of what compiled it.
        cached: whether the answer was remembered from an earlier time.
    """

    memory: Memory
    collectives: tuple[CompiledCollective, ...]
    timeline: Timeline | None
    compile_seconds: float
    cached: bool
