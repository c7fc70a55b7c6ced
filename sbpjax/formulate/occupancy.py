"""Who occupies memory when: the byte side of the search problem.

The problem can only charge a node for its own option, so this is a close estimate; the layout that comes out is
measured exactly (`cost.memory`), and the limit tightened when the estimate was too hopeful.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sbpjax.cost.compute import fraction, renames
from sbpjax.formulate.nodes import Draft
from sbpjax.formulate.region import Region
from sbpjax.program.graph import Constant, Phase, Tensor
from sbpjax.program.program import Program
from sbpjax.sbp import Placement


def occupy(draft: Draft, region: Region, program: Program, end: int) -> None:
    """Charge every node of the program for the bytes that it keeps alive, over moments `0` to `end`.

    Arguments that the caller gives away die with their last use, or pass their buffer to the result that carries them
    on; others live through the step.
    """
    graph = region.options.graph
    donated = {t: leaf for t, leaf in zip(graph.inputs, program.leaves, strict=True) if leaf.donated}
    carried_back = {leaf.carried_to for leaf in donated.values() if leaf.carried_to is not None}
    lasting = {operand: r for r, operand in enumerate(graph.outputs) if not isinstance(operand, Constant)}
    for t in graph.inputs:
        held = region.holders[t]
        leaf = donated.get(t)
        uses = region.uses(t)
        dies = leaf is not None and leaf.carried_to is None and t not in lasting
        last = max((u.last for u in uses), default=0) if dies else end
        draft.occupy(held.node, 0, last, local_bytes(draft, held.placements, graph.tensors[t]))
    for t, r in lasting.items():
        target = region.results[r]
        if r not in carried_back and t not in region.inputs:
            made = region.made_at.get(t, 0)
            draft.occupy(target.node, made, end, local_bytes(draft, target.placements, graph.tensors[t]))
    _occupy_region(draft, region)


def _occupy_region(draft: Draft, region: Region) -> None:
    graph = region.options.graph
    # An input seen through a barrier or a reshape is still the caller's buffer. Any other tensor that an op renames
    # hands its buffer on: the new name is charged from the next moment.
    renaming = {i for i, op in enumerate(graph.ops) if renames(op, region.options.in_memory)}
    renamed = {graph.ops[i].outputs[0] for i in renaming}
    still_arguments = {graph.ops[i].outputs[0] for i in renaming if graph.ops[i].inputs[0] in region.inputs}
    for t, tensor in enumerate(graph.tensors):
        uses = region.uses(t)
        if not uses or not region.options.in_memory[t] or t in still_arguments:
            continue
        made, kept = region.holders[t], region.kept(t)
        first, last = min(u.first for u in uses), max(u.last for u in uses)
        if t not in region.inputs:
            # Where the home takes over, the tensor as it was made is mostly the same buffer.
            until = max(first - 1, region.made_at[t]) if kept is not made else last
            start = region.made_at[t] + (t in renamed)
            if start <= until:
                draft.occupy(made.node, start, until, local_bytes(draft, made.placements, tensor))
        if kept is not made:
            draft.occupy(kept.node, first, last, local_bytes(draft, kept.placements, tensor))
        # A copy, or what an op asks for, is charged for what it has more than the least that its source can have.
        least = local_bytes(draft, kept.placements, tensor).min()
        for u in uses:
            if (t, u.phase) not in region.copies and u.i not in renaming:
                asked = region.asking(u.i, u.k)
                extra = np.maximum(local_bytes(draft, asked.placements, tensor) - least, 0.0)
                draft.occupy(asked.node, u.first, u.last, extra)
        phases: list[Phase] = list(dict.fromkeys(u.phase for u in uses))
        for phase in phases:
            if copy := region.copies.get((t, phase)):
                span = [u for u in uses if u.phase == phase]
                extra = np.maximum(local_bytes(draft, copy.placements, tensor) - least, 0.0)
                draft.occupy(copy.node, min(u.first for u in span), max(u.last for u in span), extra)
    for i, scan in region.scans.items():
        first, last = region.moments[i]
        op = graph.ops[i]
        assert op.body is not None
        consts, carry = op.params["num_consts"], op.params["num_carry"]
        for c in range(carry):
            held, t = scan.inputs[consts + c], op.body.inputs[consts + c]
            draft.occupy(held.node, first, last, local_bytes(draft, held.placements, op.body.tensors[t]))
        _occupy_region(draft, scan.body)


def local_bytes(draft: Draft, placements: Sequence[Placement], tensor: Tensor) -> np.ndarray:
    """Bytes on one device in each placement."""
    whole = tensor.bytes
    return np.array([whole * fraction(p, draft.mesh_key) for p in placements])
