"""From a strategy's rules and pins to sets of placements for what the ops of a program write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sbpjax.errors import InvalidStrategy
from sbpjax.program.graph import Op
from sbpjax.program.program import Program
from sbpjax.sbp import MeshShape, S, Sbp
from sbpjax.strategy.choice import Shape, resolve
from sbpjax.strategy.pattern import nearest
from sbpjax.strategy.residual import residual_sums
from sbpjax.strategy.restrictions import Allowed, Relaxed, place
from sbpjax.strategy.rules import Pin, Rule, idle
from sbpjax.strategy.schema import ActivationRule


@dataclass(frozen=True)
class Activations:
    """What is allowed for (op, position of the result), which axes of it a pin decided, and where rules gave way."""

    allowed: dict[tuple[Op, int], Allowed] = field(default_factory=dict)
    pins: dict[tuple[Op, int], dict[str, str]] = field(default_factory=dict)
    relaxed: dict[Relaxed, None] = field(default_factory=dict)


def restrict_activations(program: Program, mesh: MeshShape, rules: Sequence[Rule], pins: Sequence[Pin]) -> Activations:
    """Apply rules and pins for activations to a program.

    Raises:
        InvalidStrategy: a pin does not divide what it holds for, or holds for nothing.
    """
    found = Activations()
    if not rules and not pins:
        return found
    residual = (
        residual_sums(program.graph)
        if any(r.form.residual for r in rules if isinstance(r.form, ActivationRule))
        else frozenset()
    )
    resolver = _Results(mesh, found)
    matched: set[int] = set()
    for graph, op, _ in program.graph.walk():
        for k, out in enumerate(op.outputs):
            shape = graph.tensors[out].shape
            # What a loop returns lies as its body has it, and rules hold for what the body's ops write.
            ours = () if op.body else (r for r in rules if r.holds_for_result(op, len(shape), residual))
            deciders = (*(p for p in pins if p.holds_for_result(op, len(shape))), *ours)
            matched |= set(map(id, deciders))
            resolver.resolve(op, k, shape, deciders)
    for pin in pins:
        if id(pin) not in matched:
            modules = {op.source.module for _, op, _ in program.graph.walk()}
            near = nearest(pin.pattern, modules - {""}, "/")
            hint = f"did you mean {near!r}?" if near else "the program has no named modules"
            raise InvalidStrategy(f"{pin.origin}: nothing in a module like {pin.pattern!r} matches; {hint}")
    found.relaxed.update(
        dict.fromkeys(idle(rules, mesh, resolver.used, lambda rule: id(rule) in matched, program.name))
    )
    return found


class _Results:
    """Resolves what ops write, result by result, into `found`; `used` are the rules that decided something."""

    def __init__(self, mesh: MeshShape, found: Activations) -> None:
        self.mesh = mesh
        self.found = found
        self.used: set[tuple[int, str]] = set()

    def resolve(self, op: Op, k: int, shape: tuple[int, ...], deciders: Sequence[Rule | Pin]) -> None:
        allowed: dict[str, frozenset[Sbp]] = {}
        for axis, size in self.mesh.items():
            decider = next((d for d in deciders if axis in d.axes), None)
            if decider is None or decider.axes[axis].is_free:
                continue
            choice = decider.axes[axis]
            view = Shape(shape, 0, shape, lambda d, n=size: shape[d] % n == 0)
            wanted = frozenset().union(*(resolve(a, view) for a in choice.alternatives))
            fitting = frozenset(o for o in wanted if not isinstance(o, S) or view.divides(o.dim))
            reason = f"{choice} does not divide shape {shape} by {size}"
            if fitting:
                allowed[axis] = fitting
                self.used.add((id(decider), axis))
                if isinstance(decider, Pin):
                    self.found.pins.setdefault((op, k), {})[axis] = decider.origin
            elif isinstance(decider, Pin):
                raise InvalidStrategy(
                    f"{decider.origin}: {axis}={choice} cannot hold for {place(op)}: {reason}; narrow the pin with "
                    "`rank:` or `primitive:`, or write `[S(d), B]`"
                )
            else:
                self.found.relaxed[Relaxed(place(op), axis, reason)] = None
        if allowed:
            self.found.allowed[op, k] = allowed
