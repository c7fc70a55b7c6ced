"""From JAX's trace of a call to a `Program`: the graph, its leaves with names and roles, and how to call it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from sbpjax import compat
from sbpjax.errors import ArgumentMismatch
from sbpjax.program.call import PlainCall
from sbpjax.program.carry import Subtree, carried
from sbpjax.program.draft import Draft
from sbpjax.program.fingerprint import fingerprint
from sbpjax.program.flatten import Flattener
from sbpjax.program.graph import Constant
from sbpjax.program.names import closure_names, distinct
from sbpjax.program.phases import assign_phases
from sbpjax.program.program import Leaf, Program
from sbpjax.program.roles import LeafFacts, reading_phases, roles
from sbpjax.program.sameness import same_structure
from sbpjax.program.variables import NamedLeaf


def assemble(call: PlainCall, args: tuple[Any, ...], kwargs: dict[str, Any], traced: Any) -> Program:
    """Make the program of a call that JAX has traced."""
    draft, closure = _draft(traced)
    differentiated = assign_phases(draft)
    groups = call.argument_leaves(args, kwargs)
    named = [NamedLeaf(path) for path in closure_names(call.fn, closure)] + [leaf for group in groups for leaf in group]
    argument_of = [-1] * len(closure) + [i for i, group in enumerate(groups) for _ in group]
    results = call.result_leaves(jax.tree.unflatten(traced.out_tree, range(len(draft.outputs))))
    in_tree = jax.tree.structure(call.dynamic(*call.purify(args, kwargs)))
    carry = _carry(call, draft, named, results, Subtree(in_tree, len(closure)), traced.out_tree, differentiated)
    facts = [
        LeafFacts(
            path=leaf.path,
            aval=draft.avals[tensor],
            kind=leaf.kind,
            carried=position in carry,
            closed_over=position < len(closure),
            argument=argument,
            alone=argument >= 0 and len(groups[argument]) == 1 and "." not in leaf.path,
        )
        for position, (leaf, tensor, argument) in enumerate(zip(named, draft.inputs, argument_of, strict=True))
    ]
    found_roles = roles(facts, reading_phases(draft), differentiated)
    donated = [False] * len(closure) + [info.donated for info in jax.tree.leaves(traced.args_info)]
    paths = distinct([leaf.path for leaf in named])
    leaves = tuple(
        Leaf(path, role, gives, carry.get(position))
        for position, (path, role, gives) in enumerate(zip(paths, found_roles, donated, strict=True))
    )
    graph = draft.finish([leaf.path for leaf in leaves])
    result_paths = tuple(leaf.path for leaf in results)
    shown_in, shown_out = call.shown_trees(args, kwargs, traced.out_tree)
    avals = [draft.avals[tensor] for tensor in draft.inputs[len(closure) :]]
    return Program(
        name=call.name,
        graph=graph,
        leaves=leaves,
        result_paths=result_paths,
        closure=closure,
        in_tree=shown_in,
        out_tree=shown_out,
        static_argnums=tuple(sorted(call.static_positions(len(args)))),
        flatten_call=_flatten_call(call, call.static(args, kwargs), in_tree, leaves[len(closure) :], avals),
        finish=_finish(call, traced.out_tree),
        mutates=call.mutates,
        fingerprint=fingerprint(graph, leaves, result_paths),
    )


def _draft(traced: Any) -> tuple[Draft, tuple[Any, ...]]:
    """The flat graph, dead code dropped, and the values of its first inputs: what the function closed over."""
    jaxpr, consts = compat.opened(traced.jaxpr)
    jaxpr = compat.without_dead_code(jaxpr)
    flattener = Flattener()
    draft = flattener.draft
    arguments = [draft.tensor(compat.bare_aval(var.aval)) for var in jaxpr.invars]
    draft.outputs = flattener.run(jaxpr, consts, arguments)
    draft.drop_dead_ops()
    used = {x for operands in (draft.outputs, *(op.inputs for op in draft.ops)) for x in operands}
    captured = [(tensor, value) for tensor, value in flattener.captured.values() if tensor in used]
    draft.inputs = [tensor for tensor, _ in captured] + arguments
    return draft, tuple(value for _, value in captured)


def _carry(
    call: PlainCall,
    draft: Draft,
    leaves: Sequence[NamedLeaf],
    results: Sequence[NamedLeaf],
    arguments: Subtree,
    out_tree: Any,
    differentiated: bool,
) -> dict[int, int]:
    """For each leaf that is carried, the result that is its next value."""
    avals = [draft.avals[tensor] for tensor in draft.inputs]
    result_avals = [x.aval if isinstance(x, Constant) else draft.avals[x] for x in draft.outputs]
    result = Subtree(out_tree, 0)
    trees = [tree for form in arguments.children() for tree in form.children()]
    found: dict[int, int] = {}
    if call.mutates:  # nnx returns the state of its objects before the user's own result
        *_, result = result.children()
        trees = [tree for tree in trees if not any(leaves[i].stateful for i in tree.leaves)]
        next_state = {leaf.path: j for j, leaf in enumerate(results) if leaf.stateful}
        for i, leaf in enumerate(leaves):
            j = next_state.get(leaf.path) if leaf.stateful else None
            if j is not None and (avals[i].shape, avals[i].dtype) == (result_avals[j].shape, result_avals[j].dtype):
                found[i] = j
    updated = set(draft.inputs).union(*(op.outputs for op in draft.ops if op.phase != "forward"))

    def may_carry_array(position: int) -> bool:
        # In a step that computes gradients, an array that is the forward pass's own result is nobody's next value.
        operand = draft.outputs[position]
        return not differentiated or isinstance(operand, Constant) or operand in updated

    return found | carried(trees, avals, result, result_avals, may_carry_array)


def _flatten_call(
    call: PlainCall, static: dict[str, Any], in_tree: Any, leaves: Sequence[Leaf], avals: Sequence[Any]
) -> Callable[..., list[Any]]:
    """The function that checks a later call against the traced one and returns its leaves.

    Weak types are not compared: a step counter that begins as the number 0 comes back as an array. Static fields are
    compared by what they are made of: an optimizer made twice alike is the same.
    """
    accepted = {in_tree}

    def flatten_call(args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        args, kwargs = tuple(args), dict(kwargs)
        call.same_static(static, args, kwargs)
        values, tree = jax.tree.flatten(call.dynamic(*call.purify(args, kwargs)))
        if tree not in accepted:
            if not same_structure(tree, in_tree):
                raise ArgumentMismatch(_tree_difference(call, leaves, args, kwargs))
            accepted.add(tree)
        for value, leaf, aval in zip(values, leaves, avals, strict=True):
            if getattr(value, "shape", None) != aval.shape or getattr(value, "dtype", None) != aval.dtype:
                _check_aval(call.name, leaf.path, value, aval)
        return values

    return flatten_call


def _check_aval(name: str, path: str, value: Any, aval: Any) -> None:
    """Refuse a leaf of another shape or dtype, seen as JAX sees it (numpy's float64 is float32 without x64)."""
    given = compat.aval_of(value)
    if (given.shape, given.dtype) != (aval.shape, aval.dtype):
        raise ArgumentMismatch(
            f"{name}: {path} was {aval.str_short()} when this was traced and is {given.str_short()} now: "
            "pass what was planned for, or plan again for these shapes"
        )


def _tree_difference(call: PlainCall, leaves: Sequence[Leaf], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    expected = {leaf.path for leaf in leaves}
    given = {leaf.path for group in call.argument_leaves(args, kwargs) for leaf in group}
    missing, unknown = sorted(expected - given), sorted(given - expected)
    if missing or unknown:
        parts = [
            f"{what} {', '.join(paths[:3])}" for what, paths in (("missing", missing), ("unexpected", unknown)) if paths
        ]
        reason = " and ".join(part + ("" if len(part) < 200 else " ...") for part in parts)
    else:
        reason = "the leaves are the same, but containers or their static fields (functions, options) differ"
    return (
        f"{call.name}: the arguments differ from those that were traced: {reason}. Pass the same trees, or plan again"
    )


def _finish(call: PlainCall, out_tree: Any) -> Callable[..., Any]:
    """The function that turns result leaves into what the user's function returns."""

    def finish(values: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return call.restore(jax.tree.unflatten(out_tree, values), tuple(args), dict(kwargs))

    return finish
