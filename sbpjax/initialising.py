"""`init`: arguments of a plan, born where the plan has them.

An initialiser is a program like any other. Its results are pinned to the placements of the plan's arguments and the
rest is searched, so each device draws its own part of the random bits and no parameter is ever whole on one device;
values are those that one device would have drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh

from sbpjax.errors import ArgumentMismatch, UnboundPlan
from sbpjax.planning import plan_program
from sbpjax.plans import Plan
from sbpjax.program.call import refuse_other_arguments
from sbpjax.program.program import Program
from sbpjax.program.trace import positions, trace
from sbpjax.sbp import Placement


def init(
    fn: Callable[..., Any],
    *args: Any,
    plan: Plan,
    mesh: Mesh,
    argnums: int | Sequence[int] = 0,
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Call an initialiser so that its result lies as the plan has the arguments.

        state = sbpjax.init(init_state, jax.random.key(0), plan=plan, mesh=mesh)

    Args:
        fn: makes what the planned function takes at `argnums` (for several: a tuple); nnx modules too.
        args, kwargs: its arguments.
        plan: of the function that will take the result.
        mesh: from `plan.make_mesh()`.
        argnums: which positional arguments of the planned function are made; negative ones count from the last.

    Raises:
        InvalidOption: `argnums` is no position.
        ArgumentMismatch: the result has other leaves, shapes or dtypes than those arguments; the message names one.
    """
    if plan.program is None:
        raise UnboundPlan("a loaded plan has no function: call plan.bind(fn, *args) before sbpjax.init")
    refuse_other_arguments(fn, args, kwargs or {})
    if _makes_modules(fn, args, kwargs):
        fn = nnx.jit(fn)
    program = trace(fn, args, dict(kwargs or {}))
    wanted = _argument_leaves(plan.program, argnums)
    placements = _matched(program, plan, wanted)
    own = plan_program(program, plan.cluster, plan.mesh_shape, results=placements)
    return own.emit(mesh)(*args, **dict(kwargs or {}))


def _makes_modules(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> bool:
    made = nnx.eval_shape(fn, *args, **dict(kwargs or {}))
    leaves = jax.tree.leaves(made, is_leaf=lambda x: isinstance(x, nnx.Module | nnx.Optimizer))
    return any(isinstance(x, nnx.Module | nnx.Optimizer) for x in leaves)


def _argument_leaves(program: Program, argnums: int | Sequence[int]) -> list[int]:
    """The graph inputs that belong to some positional arguments, in order."""
    first = len(program.closure)
    numbered, _ = jax.tree.unflatten(program.in_tree, range(first, len(program.leaves)))
    count = len(numbered) + len(program.static_argnums)
    dynamic = [p for p in range(count) if p not in program.static_argnums]
    chosen = positions("argnums", argnums, count)
    for position in chosen:
        if position not in dynamic:
            raise ArgumentMismatch(
                f"{program.name} has no array argument at position {position}; argnums may be among {dynamic}"
            )
    return [i for position in chosen for i in jax.tree.leaves(numbered[dynamic.index(position)])]


def _matched(program: Program, plan: Plan, wanted: Sequence[int]) -> list[Placement]:
    """For each result of the initialiser, the placement of the argument leaf that it becomes."""
    target = plan.program
    assert target is not None
    made = [(path, program.graph.aval(x)) for path, x in zip(program.result_paths, program.graph.outputs, strict=True)]
    for (path, aval), i in zip(made, wanted, strict=False):
        expected, name = target.graph.tensors[target.graph.inputs[i]].aval, target.leaves[i].path
        if (aval.shape, aval.dtype) != (expected.shape, expected.dtype) or not _same_leaf(path, name):
            raise ArgumentMismatch(
                f"{program.name} makes {path} {aval.str_short()} where {target.name} takes {name} "
                f"{expected.str_short()}; initialise what was planned, or plan for what is initialised"
            )
    if len(made) != len(wanted):
        raise ArgumentMismatch(
            f"{program.name} makes {len(made)} arrays where {target.name} takes {len(wanted)}; check argnums"
        )
    return [plan.layout.inputs[i] for i in wanted]


def _same_leaf(made: str, taken: str) -> bool:
    """Whether two paths end alike: their first parts are the names of a result and of an argument."""
    return made.split(".")[-1] == taken.split(".")[-1] or "." not in made or "." not in taken
