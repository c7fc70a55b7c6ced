"""From a strategy's rules and pins to sets of placements for the arguments of one program on one mesh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from sbpjax.errors import InvalidStrategy, UnknownName
from sbpjax.program.program import Program
from sbpjax.sbp import KNOWN_AXES, B, MeshShape, Placement, S, Sbp
from sbpjax.strategy.activations import restrict_activations
from sbpjax.strategy.choice import Alternative, At, Choice, Shape, resolve
from sbpjax.strategy.kin import Kin, kin
from sbpjax.strategy.pattern import nearest
from sbpjax.strategy.restrictions import Allowed, Relaxed, Restrictions, show
from sbpjax.strategy.rules import Pin, Rule, idle


def restrict(
    program: Program, mesh: MeshShape, roles: Mapping[str, Sequence[Rule]], pins: Sequence[Pin]
) -> Restrictions:
    """Apply rules and pins to a program.

    Raises:
        UnknownName: a rule or pin speaks of an axis that is neither in the mesh nor one of `KNOWN_AXES`.
        InvalidStrategy: a pin cannot hold, or matches nothing.
    """
    for rule in (*(r for rules in roles.values() for r in rules), *pins):
        for axis in rule.axes:
            if axis not in mesh and axis not in KNOWN_AXES:
                remedy = f"{rule.origin} speaks of it; add it to mesh=, or leave mesh= out."
                raise UnknownName.among("mesh axis", axis, {*mesh, *KNOWN_AXES}, remedy)
    axes = {axis: size for axis, size in mesh.items() if size > 1}
    resolver = _Leaves(program, axes, roles, [p for p in pins if not p.is_module], kin(program))
    resolver.check_patterns()
    leaves = tuple(resolver.allowed(i) for i in range(len(program.leaves)))
    resolver.note_idle_rules()
    activations = restrict_activations(program, axes, roles["activation"], [p for p in pins if p.is_module])
    return Restrictions(
        tuple(leaf.path for leaf in program.leaves),
        leaves,
        tuple(resolver.pinned(i) for i in range(len(program.leaves))),
        activations.allowed,
        activations.pins,
        (*resolver.relaxed, *activations.relaxed),
    )


@dataclass
class _Leaves:
    """Resolves leaves, each once; a bias may ask for its kernel, an optimizer's state for its parameter."""

    program: Program
    mesh: MeshShape
    roles: Mapping[str, Sequence[Rule]]
    pins: Sequence[Pin]
    kin: Kin
    relaxed: list[Relaxed] = field(default_factory=list)
    used: set[tuple[int, str]] = field(default_factory=set)
    done: dict[int, Allowed] = field(default_factory=dict)

    def check_patterns(self) -> None:
        """Refuse a pin that no leaf's path matches."""
        paths = [leaf.path for leaf in self.program.leaves]
        for pin in self.pins:
            if not any(pin.holds_for_leaf(path) for path in paths):
                near = nearest(pin.pattern, paths)
                hint = f"did you mean {near!r}?" if near else f"there are {', '.join(paths[:4])}, ..."
                raise InvalidStrategy(
                    f"{pin.origin}: no argument of {self.program.name} has a path like {pin.pattern!r}; {hint} "
                    "(`*` is one part of a path, `**` any number)"
                )

    def note_idle_rules(self) -> None:
        """List the user's own rules that decided nothing for any leaf; all leaves are resolved by now."""
        for role, rules in self.roles.items():
            if role == "activation":
                continue
            layers = [(p.path, self._layer(i)) for i, p in enumerate(self.program.leaves) if p.role == role]
            self.relaxed += idle(
                rules,
                self.mesh,
                self.used,
                lambda r, own=layers: any(r.holds_for_leaf(*x) for x in own),
                self.program.name,
            )

    def allowed(self, i: int) -> Allowed:
        """What is allowed for leaf `i`."""
        if i not in self.done:
            self.done[i] = self._resolve(i)
        return self.done[i]

    def pinned(self, i: int) -> Mapping[str, str]:
        """The axes of leaf `i` that a pin decides."""
        return {axis: f"the pin at {d.origin}" for axis, (_, d) in self._deciding(i) if isinstance(d, Pin)}

    def _deciding(self, i: int) -> Iterator[tuple[str, tuple[Choice, Rule | Pin]]]:
        """For each axis the first pin, else the first rule, that speaks of it; pins and plain placements come first."""
        leaf, layer = self.program.leaves[i], self._layer(i)
        pins = [p for p in self.pins if p.holds_for_leaf(leaf.path)]
        rules = [r for r in self.roles[leaf.role] if r.holds_for_leaf(leaf.path, layer)]
        found = []
        for axis in self.mesh:
            decider = next((r for r in (*pins, *rules) if axis in r.axes), None)
            if decider is not None and not decider.axes[axis].is_free:
                found.append((axis, (decider.axes[axis], decider)))
        return iter(sorted(found, key=lambda f: (not isinstance(f[1][1], Pin), _vagueness(f[1][0]))))

    def _layer(self, i: int) -> tuple[int, ...]:
        """The shape of one layer of leaf `i`."""
        return self.kin.shapes[i][self.kin.stacked[i] :]

    def _resolve(self, i: int) -> Allowed:
        allowed: dict[str, frozenset[Sbp]] = {}
        for axis, (choice, decider) in self._deciding(i):
            pinned = isinstance(decider, Pin)
            wanted = self._wanted(i, axis, choice, 0 if pinned else self.kin.stacked[i], allowed)
            if wanted is None:
                self.used.add((id(decider), axis))
                continue
            fitting = frozenset(o for o in wanted if self._fits(i, {**allowed, axis: frozenset([o])}))
            if not fitting and pinned:
                raise InvalidStrategy(self._cannot_hold(i, axis, choice, decider, allowed))
            if not fitting and len(self.kin.shapes[i]) > self.kin.stacked[i]:
                self.relaxed.append(
                    Relaxed(self.program.leaves[i].path, axis, self._why_not(i, axis, choice, wanted, allowed))
                )
            if fitting:
                self.used.add((id(decider), axis))
            allowed[axis] = fitting or frozenset([B])
        return allowed

    def _wanted(self, i: int, axis: str, choice: Choice, stacked: int, allowed: Allowed) -> frozenset[Sbp] | None:
        """All that the choice names, fitting or not; None where it leaves the leaf free."""
        sizes = self.kin.shapes[i]
        taken = [1] * len(sizes)
        for other, options in allowed.items():
            if len(options) == 1 and isinstance(only := next(iter(options)), S):
                taken[only.dim] *= self.mesh[other]
        local = tuple(size // n for size, n in zip(sizes, taken, strict=True))
        shape = Shape(sizes, stacked, local, lambda d: self._fits(i, {**allowed, axis: frozenset([S(d)])}))
        wanted: set[Sbp] = set()
        for alternative in choice.alternatives:
            if alternative in ("kernel", "parameter"):
                relative = self.kin.kernel[i] if alternative == "kernel" else self.kin.parameter[i]
                if relative is None:
                    if alternative == "parameter":
                        return None
                    wanted.add(B)
                    continue
                options = self.allowed(relative).get(axis)
                if options is None:
                    return None
                # A kernel's dimensions that the bias lacks are its inputs: split there, its bias is whole.
                lead = len(self.kin.shapes[relative]) - len(sizes)
                outputs = lead + self.kin.stacked[i] if lead else 0
                wanted |= {S(o.dim - lead) if isinstance(o, S) and o.dim >= outputs else B for o in options}
            else:
                wanted |= resolve(alternative, shape)
        return frozenset(wanted)

    def _fits(self, i: int, allowed: Allowed) -> bool:
        """Whether some combination of what is allowed divides the leaf's shape."""
        shape = self.kin.shapes[i]
        for options in product(*allowed.values()):
            # An empty array would divide by anything, but there is nothing to split.
            if any(isinstance(o, S) and (o.dim >= len(shape) or 0 in shape) for o in options):
                continue
            if Placement.of(len(shape), dict(zip(allowed, options, strict=True)), self.mesh).divides(shape, self.mesh):
                return True
        return False

    def _why_not(self, i: int, axis: str, choice: Choice, wanted: frozenset[Sbp], allowed: Allowed) -> str:
        shape, size = self.kin.shapes[i], self.mesh[axis]
        if 0 in shape:
            return f"an array of shape {shape} has no elements to split"
        with_others = "".join(f", with {a}={show(options)}" for a, options in allowed.items() if options != {B})
        dims = sorted(o.dim for o in wanted if isinstance(o, S) and o.dim < len(shape))
        if dims:
            which = " and ".join(f"dimension {d} ({shape[d]})" for d in dims)
            return f"{which} of shape {shape} cannot be cut into {size} equal parts{with_others}"
        if any(isinstance(a, At) for a in choice.alternatives):
            return f"shape {shape} has no such dimension"
        return f"no dimension of shape {shape} can be cut into {size} equal parts{with_others}"

    def _cannot_hold(self, i: int, axis: str, choice: Choice, pin: Pin, allowed: Allowed) -> str:
        shape, size = self.kin.shapes[i], self.mesh[axis]
        wanted = self._wanted(i, axis, choice, 0, allowed) or frozenset()
        why = self._why_not(i, axis, choice, wanted, allowed)
        would = [f"{axis}={S(d)}" for d in range(len(shape)) if self._fits(i, {**allowed, axis: frozenset([S(d)])})]
        would.append(f"{axis}=B")
        for o in wanted:
            if isinstance(o, S) and o.dim < len(shape) and 0 not in shape:
                parts = size * _parts_taken(o.dim, allowed, self.mesh)
                would.append(f"a size of {-(-shape[o.dim] // parts) * parts} for dimension {o.dim}")
        return (
            f"{pin.origin}: {axis}={choice} cannot hold for {self.program.leaves[i].path}: {why}; "
            f"{', or '.join(would)} would do"
        )


def _vagueness(choice: Choice) -> int:
    """`largest` and `split` look at what other axes leave over, so they come last."""
    return 0 if choice.is_fixed else 2 if {"largest", "split"} & _words(choice.alternatives) else 1


def _words(alternatives: Sequence[Alternative]) -> set[str]:
    return {a for a in alternatives if isinstance(a, str)}


def _parts_taken(dim: int, allowed: Allowed, mesh: MeshShape) -> int:
    parts = 1
    for axis, options in allowed.items():
        if options == {S(dim)}:
            parts *= mesh[axis]
    return parts
