"""XLA's own predicted timeline, as its latency-hiding scheduler writes it down.

One file for each module, in protobuf's text form: the module with all its instructions, then a schedule for each
computation that was scheduled (the entry, and the bodies of loops). Times are in microseconds. The file is large
(1.5 MB for each transformer layer) and written by a machine, one field a line, so it is read line by line.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

Timed: TypeAlias = tuple[str, float, float]
"""An instruction's name, and when it starts and ends, in seconds."""


def read_schedules(folder: Path) -> dict[str, list[Timed]]:
    """By computation, its instructions in the order that they start; empty where XLA wrote no schedule."""
    schedules: dict[str, list[Timed]] = {}
    for path in sorted(folder.glob("*.schedule.txt")):
        schedules |= _read(path)
    return schedules


def _read(path: Path) -> dict[str, list[Timed]]:
    instructions: dict[str, tuple[str, str]] = {}  # computation and name, by id
    schedules: dict[str, list[Timed]] = {}
    computation = name = ""
    fields: dict[str, str] | None = None  # of the instruction that is being read, within a schedule
    per_second = 1e6
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            indent = len(line) - len(line.lstrip(" "))
            if indent > 6:
                continue
            key, _, value = line.strip().partition(": ")
            match indent, key:
                case 4, "name":
                    computation = value.strip('"')
                case 6, "name":
                    name = value.strip('"')
                case 6, "id":
                    instructions[value] = computation, name
                case 0, "computation_schedules {":
                    fields = {}
                case 2, "instructions {":
                    fields = {}
                case 4, _ if fields is not None:
                    fields[key] = value
                case 2, "}" if fields is not None and "id" in fields:
                    home, name = instructions[fields["id"]]
                    # A field that is zero is not written.
                    start, end = (float(fields.get(f"{edge}_timestamp_cycles", 0)) for edge in ("start", "end"))
                    schedules.setdefault(home, []).append((name, start, end))
                    fields = {}
                case 2, "cycles_per_microsecond":
                    per_second = 1e6 * float(value)
    return {
        computation: [(name, start / per_second, end / per_second) for name, start, end in timed]
        for computation, timed in schedules.items()
    }
