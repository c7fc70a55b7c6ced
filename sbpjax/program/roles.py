"""The role of each argument leaf: parameter, optimizer state, batch, or other.

Strategies speak of roles ("split parameters over data"), so the roles must be what a user would say. In order:

1. nnx variables say it by their type.
2. PRNG keys are *other*; what lies under `opt_state`, `mu` or `nu` is *optimizer* (arrays of numbers) or *other*
   (counters); what lies under `batch_stats` is *other*; what lies under `params` is a *parameter*.
3. Carried arrays: *parameter* where the forward pass of a differentiated function reads them, *optimizer* where only
   the update does. In a function without gradients a carried array argument is *batch* (`y = f(x)`), a container
   *other* (a cache).
4. Closed-over floating arrays are frozen *parameters*.
5. The rest is not carried: a tree of floating arrays without a common leading dimension, or one called `..._params`,
   `weights` or `variables`, holds *parameters* (a frozen base, an evaluated model); other arrays are *batch*, scalars
   *other*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp

from sbpjax.program.draft import Draft
from sbpjax.program.graph import Constant, Phase
from sbpjax.program.program import Role

OPTIMIZER_SEGMENTS: Final = {"opt_state", "mu", "nu"}
PARAMETER_ARGUMENTS: Final = {"weights", "variables"}


@dataclass(frozen=True, slots=True)
class LeafFacts:
    """What is known of one leaf before its role is.

    Attributes:
        path: its name.
        aval: shape and dtype.
        kind: the role that its nnx variable type tells, or None.
        carried: whether its next value is returned.
        closed_over: whether it is no argument but a captured array.
        argument: which argument it belongs to.
        alone: whether it is an argument of its own, not in a container.
    """

    path: str
    aval: Any
    kind: Role | None
    carried: bool
    closed_over: bool
    argument: int
    alone: bool


def reading_phases(draft: Draft) -> list[set[Phase]]:
    """For each input of a graph, the phases of the ops that read it, in loops too."""
    phases: dict[int, set[Phase]] = {tensor: set() for tensor in draft.inputs}
    for op in draft.ops:
        inside = reading_phases(op.body) if op.body is not None else None
        for k, operand in enumerate(op.inputs):
            if not isinstance(operand, Constant) and operand in phases:
                phases[operand] |= {op.phase} if inside is None else inside[k]
    return [phases[tensor] for tensor in draft.inputs]


def roles(leaves: Sequence[LeafFacts], phases: Sequence[set[Phase]], differentiated: bool) -> list[Role]:
    """The role of each leaf.

    Args:
        leaves: the leaves, closed-over ones included.
        phases: for each leaf, the phases that read it.
        differentiated: whether the function computes a gradient.
    """
    weights = _weight_arguments(leaves)
    return [_role(leaf, read, differentiated, weights) for leaf, read in zip(leaves, phases, strict=True)]


def _role(leaf: LeafFacts, read: set[Phase], differentiated: bool, weights: set[int]) -> Role:
    if leaf.kind is not None:
        return "other" if leaf.kind == "optimizer" and not _is_floating_array(leaf.aval) else leaf.kind
    segments = set(leaf.path.split("."))
    if jnp.issubdtype(leaf.aval.dtype, jax.dtypes.extended):
        return "other"
    if segments & OPTIMIZER_SEGMENTS:
        return "optimizer" if _is_floating_array(leaf.aval) else "other"
    if "batch_stats" in segments:
        return "other"
    if "params" in segments:
        return "parameter"
    if leaf.closed_over:
        return "parameter" if _is_floating_array(leaf.aval) else "other"
    if not leaf.carried:
        if leaf.argument in weights:
            return "parameter" if leaf.aval.ndim or _is_floating(leaf.aval) else "other"
        return "batch" if leaf.aval.ndim else "other"
    if not differentiated:
        return "batch" if leaf.alone else "other"
    if not _is_floating(leaf.aval):
        return "other"
    if read - {"update"}:
        return "parameter"
    return "optimizer" if leaf.aval.ndim else "other"


def _weight_arguments(leaves: Sequence[LeafFacts]) -> set[int]:
    """Arguments that are not carried and yet look like a model's weights, not like a batch of data."""
    arguments: dict[int, list[LeafFacts]] = {}
    for leaf in leaves:
        if not leaf.closed_over and not leaf.carried and leaf.kind is None:
            arguments.setdefault(leaf.argument, []).append(leaf)
    return {argument for argument, members in arguments.items() if _are_weights(members)}


def _are_weights(members: list[LeafFacts]) -> bool:
    name = members[0].path.split(".")[0]
    if name in PARAMETER_ARGUMENTS or name.endswith("_params"):
        return True
    arrays = [leaf for leaf in members if leaf.aval.ndim]
    return len({leaf.aval.shape[0] for leaf in arrays}) > 1 and all(_is_floating(leaf.aval) for leaf in arrays)


def _is_floating(aval: Any) -> bool:
    return jnp.issubdtype(aval.dtype, jnp.floating)


def _is_floating_array(aval: Any) -> bool:
    return _is_floating(aval) and aval.ndim > 0
