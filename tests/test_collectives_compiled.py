"""What is planned is what is compiled: the collectives of the plan, no others; and remat still saves memory.

Compiled text is XLA's, for the CPU, in float32 (there XLA widens bfloat16 reductions). One rewrite is allowed: XLA
combines all-reduces into one of several operands, and each operand is counted as the all-reduce that it was. Nothing
else may change: not the kind, the axes, the bytes, the number of runs, or the boxing that a collective says it is.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

import jax
import numpy as np
import placed
import pytest
from equality import ALL, EXAMPLES, SHAPES, STRATEGIES, begin, mesh_of
from models import linen_lm

import sbpjax

KINDS = {
    "all-reduce": "all_reduce",
    "reduce-scatter": "reduce_scatter",
    "all-gather": "all_gather",
    "all-to-all": "all_to_all",
    "collective-permute": "permute",
}
BYTES = {"pred": 1, "s8": 1, "u8": 1, "f32": 4, "s32": 4, "u32": 4}


@dataclass(frozen=True)
class Found:
    """One collective of compiled text; `scope` is that of the first of those that were combined."""

    kind: str
    axes: tuple[str, ...]
    bytes: int
    runs: int
    scope: str
    combined: bool


def computations(text: str) -> dict[str, list[str]]:
    """The lines of each computation by name; the entry's is `ENTRY`."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if head := re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{$", line):
            lines = found.setdefault("ENTRY" if head[1] else head[2], [])
        else:
            lines.append(line)
    return found


def compiled_collectives(text: str, mesh: dict[str, int]) -> Iterator[Found]:
    """Every collective that one step runs, loops counted."""
    lines = computations(text)

    def walk(name: str, runs: int) -> Iterator[Found]:
        for line in lines[name]:
            if op := re.search(rf"= (.+?) ({'|'.join(KINDS)})(-start)?\(", line):
                yield from one(line, op[1], op[2], runs)
            trips = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', line)
            assert trips or " while(" not in line, f"a loop of unknown length: {line}"
            for called in re.findall(r"(?:body|calls|to_apply)=%?([\w.\-]+)", line):
                yield from walk(called, runs * int(trips[1] if trips else 1))

    def one(line: str, result: str, kind: str, runs: int) -> Iterator[Found]:
        operands = re.findall(r"(\w+)\[([\d,]*)\]", result)
        scope = re.search(r"sbp(?:\.[otv]\d+)+", line)
        assert scope, f"no boxing is named: {line}"
        axes, size = taking_part(line, kind, mesh)
        each = [BYTES[dtype] * math.prod(map(int, filter(None, dims.split(",")))) for dtype, dims in operands]
        if kind == "all-reduce":
            yield from (Found(KINDS[kind], axes, nbytes, runs, scope[0], len(each) > 1) for nbytes in each)
        else:  # an all-to-all may have an operand for each device of its group
            larger = sum(each) * (size if kind == "reduce-scatter" else 1)
            yield Found(KINDS[kind], axes, larger, runs, scope[0], False)

    return walk("ENTRY", 1)


def taking_part(line: str, kind: str, mesh: dict[str, int]) -> tuple[tuple[str, ...], int]:
    """The mesh axes of a collective's groups of devices, and how many devices are in each group."""
    numbers = np.arange(math.prod(mesh.values())).reshape(tuple(mesh.values()))
    if kind == "collective-permute":
        listed = re.search(r"source_target_pairs=\{(.*?)\}\}", line)
        ends = np.array(re.findall(r"(\d+),(\d+)", listed[1]), dtype=int).T
        places = (np.unravel_index(end, numbers.shape) for end in ends)
        moved = tuple(a for a, source, target in zip(mesh, *places, strict=True) if (source != target).any())
        return moved, math.prod(mesh[a] for a in moved)
    listed = re.search(r"replica_groups=\{\{(.*?)\}\}", line)
    groups = sorted(sorted(map(int, group.split(","))) for group in listed[1].split("},{"))
    for n in range(1, len(mesh) + 1):
        for axes in combinations(mesh, n):
            if sorted(map(sorted, placed.grouped(numbers, axes, mesh)[0].tolist())) == groups:
                return axes, len(groups[0])
    raise AssertionError(f"these devices lie along no axes of {mesh}: {line}")


def check_collectives(name: str, strategy: str, sizes: tuple[int, ...]) -> None:
    step, state = begin(name, "float32")
    batch = ALL[name].batch(np.float32, 0)
    plan = sbpjax.plan(step, *state, batch, mesh=mesh_of(strategy, sizes), strategy=strategy)
    text = plan.emit(plan.make_mesh()).lower(*state, batch).compile().as_text()
    mesh = {axis: n for axis, n in plan.mesh_shape.items() if n > 1}
    compiled = list(compiled_collectives(text, mesh))
    order = list(mesh)
    planned: Counter = Counter()
    scopes = set()
    for c in plan.collectives:
        axes = tuple(sorted(c.axes, key=order.index))
        planned[c.kind, axes, c.bytes] += c.count
        scopes.add((c.kind, axes, c.bytes, c.scope))
    ran: Counter = Counter()
    for found in compiled:
        ran[found.kind, found.axes, found.bytes] += found.runs
        assert found.combined or (found.kind, found.axes, found.bytes, found.scope) in scopes, found
    assert planned, "a plan that communicates nothing tests nothing"
    assert ran == planned


@pytest.mark.parametrize(
    ("name", "strategy", "sizes"),
    [
        ("mlp", "fsdp", (8,)),
        ("lm", "auto", (8,)),
        ("lm", "megatron", (8,)),
        ("scanned_lm", "fsdp", (2, 4)),
        ("scanned_lm", "sequence", (2, 4)),
        ("vit", "hsdp", (2, 4)),
        ("cnn", "zero1", (2, 2, 2)),
    ],
)
def test_compiled_collectives_are_those_of_the_plan(name, strategy, sizes):
    check_collectives(name, strategy, sizes)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "strategy", "sizes"), product(EXAMPLES, STRATEGIES, SHAPES))
def test_compiled_collectives_are_those_of_every_plan(name, strategy, sizes):
    check_collectives(name, strategy, sizes)


def temporary_bytes(lowered) -> int:
    return lowered.compile().memory_analysis().temp_size_in_bytes


def test_remat_of_scanned_layers_saves_as_much_memory_as_without_us():
    """Temporaries with and without remat, by our plan and by plain jit with the same batch split."""
    ours, plain = {}, {}
    for remat in (True, False):
        model = linen_lm.DecoderLM(layers=8, scan=True, remat=remat)
        state = jax.eval_shape(lambda model=model: linen_lm.initial_state(model, 16, 64))
        tokens = jax.ShapeDtypeStruct((16, 64), np.int32)
        batch = {"tokens": tokens, "targets": tokens}
        plan = sbpjax.plan(linen_lm.train_step, state, batch, mesh={"data": 8}, strategy="dp")
        mesh = plan.make_mesh()
        ours[remat] = temporary_bytes(plan.emit(mesh).lower(state, batch))
        shardings = plan.in_shardings(mesh)
        plain[remat] = temporary_bytes(jax.jit(linen_lm.train_step, in_shardings=shardings).lower(state, batch))
    assert plain[True] < 0.6 * plain[False], "the example saves nothing"
    assert ours[True] < 0.6 * ours[False]
    assert ours[True] < 1.1 * plain[True]
