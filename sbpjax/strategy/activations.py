"""From a strategy's rules and pins to sets of placements for what the ops of a program write."""

from __future__ import annotations

from collections.abc import Sequence

from sbpjax.errors import InvalidStrategy
from sbpjax.program.graph import Op
from sbpjax.program.program import Program
from sbpjax.sbp import MeshShape, S, Sbp
from sbpjax.strategy.choice import Shape, resolve
from sbpjax.strategy.pattern import nearest
from sbpjax.strategy.residual import residual_sums
from sbpjax.strategy.restrictions import Allowed, Relaxed
from sbpjax.strategy.rules import Pin, Rule
from sbpjax.strategy.schema import ActivationRule


def restrict_activations(
    program: Program, mesh: MeshShape, rules: Sequence[Rule], pins: Sequence[Pin]
) -> tuple[dict[tuple[Op, int], Allowed], list[Relaxed]]:
    """What is allowed for (op, position of the result), and where rules gave way.

    Raises:
        InvalidStrategy: a pin does not divide what it holds for, or holds for nothing.
    """
    activations: dict[tuple[Op, int], Allowed] = {}
    relaxed: dict[Relaxed, None] = {}
    if not rules and not pins:
        return activations, []
    residual = (
        residual_sums(program.graph)
        if any(r.form.residual for r in rules if isinstance(r.form, ActivationRule))
        else frozenset()
    )
    modules: set[str] = set()
    used: set[str] = set()
    for graph, op, _ in program.graph.walk():
        modules.add(op.source.module)
        for k, out in enumerate(op.outputs):
            shape = graph.tensors[out].shape
            holding = [p for p in pins if p.holds_for_result(op, len(shape))]
            used |= {p.pattern for p in holding}
            deciders = (*holding, *(r for r in rules if r.holds_for_result(op, len(shape), residual)))
            allowed = _result(deciders, f"{op.source.module or 'top level'}: {op.name}", shape, mesh, relaxed)
            if allowed:
                activations[op, k] = allowed
    for pin in pins:
        if pin.pattern not in used:
            near = nearest(pin.pattern, modules - {""}, "/")
            hint = f"did you mean {near!r}?" if near else "the program has no named modules"
            raise InvalidStrategy(f"{pin.origin}: nothing in a module like {pin.pattern!r} matches; {hint}")
    return activations, list(relaxed)


def _result(
    deciders: Sequence[Rule | Pin],
    name: str,
    shape: tuple[int, ...],
    mesh: MeshShape,
    relaxed: dict[Relaxed, None],
) -> Allowed:
    allowed: dict[str, frozenset[Sbp]] = {}
    for axis, size in mesh.items():
        decider = next((d for d in deciders if axis in d.axes), None)
        if decider is None or decider.axes[axis].is_free:
            continue
        choice = decider.axes[axis]
        view = Shape(shape, 0, shape, lambda d, n=size: shape[d] % n == 0)
        wanted = frozenset().union(*(resolve(a, view) for a in choice.alternatives))
        fitting = frozenset(o for o in wanted if not isinstance(o, S) or view.divides(o.dim))
        if fitting:
            allowed[axis] = fitting
            continue
        reason = f"{choice} does not divide shape {shape} by {size}"
        if isinstance(decider, Pin):
            raise InvalidStrategy(
                f"{decider.origin}: {axis}={choice} cannot hold for {name}: {reason}; narrow the pin with `rank:` or "
                "`primitive:`, or write `[S(d), B]`"
            )
        relaxed[Relaxed(name, axis, reason)] = None
    return allowed
