"""Which phase of a step each op belongs to: forward, backward, recomputed in the backward, or update.

JAX marks what it transposed and what it recomputes. The rest is *forward* if it was differentiated or if gradients do
not enter into it, and *update* if it depends on a gradient, or if nothing but such ops reads it (`b1 * mu` before the
gradient is added). Where nothing was transposed, all is forward.
"""

from __future__ import annotations

from sbpjax.program.draft import Draft, DraftOp
from sbpjax.program.graph import Constant


def assign_phases(draft: Draft, *, all_update: bool = False) -> bool:
    """Set the phase of every op, in loops too; say whether there is a backward pass.

    Args:
        draft: the graph.
        all_update: whether this is the body of a loop that belongs to the update.
    """
    has_backward = False
    for op in draft.ops:
        has_backward |= _assign_marked(op)
    if has_backward:
        _find_updates(draft)
    for op in draft.ops:
        if all_update and not _is_marked(op):
            op.phase = "update"
        if op.body is not None and (op.phase == "update" or all_update):
            assign_phases(op.body, all_update=True)
    return has_backward


def _assign_marked(op: DraftOp) -> bool:
    """Set the phase as far as JAX's marks tell it; say whether the op is, or contains, backward computation."""
    if op.origin.recomputed:
        op.phase = "remat"
    elif op.origin.transposed:
        op.phase = "backward"
    if op.body is not None and assign_phases(op.body) and op.phase == "forward":
        op.phase = "backward"  # a loop that computes gradients, as in gradient accumulation
    return op.phase != "forward"


def _is_marked(op: DraftOp) -> bool:
    return op.phase != "forward" or op.origin.differentiated


def _find_updates(draft: Draft) -> None:
    after_gradient: set[int] = set()
    for op in draft.ops:
        reads_gradient = any(not isinstance(x, Constant) and x in after_gradient for x in op.inputs)
        if not _is_marked(op) and reads_gradient:
            op.phase = "update"
        if op.phase != "forward":
            after_gradient.update(op.outputs)
    elsewhere: set[int] = set()
    serving: set[int] = set()
    for op in reversed(draft.ops):
        if not _is_marked(op):
            outputs = set(op.outputs)
            if outputs & serving and not outputs & elsewhere:
                op.phase = "update"
        read = {x for x in op.inputs if not isinstance(x, Constant)}
        (serving if op.phase == "update" else elsewhere).update(read)
