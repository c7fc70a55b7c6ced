"""From jaxpr to graph: calls are inlined, scans keep a body, rematerialisation becomes barriers.

What JAX nests for its own sake (jit, custom derivatives, remat, named calls) is flattened, so that a layout is chosen
for the model as a whole. What remains nested is what truly is: loops with a body of their own (`scan`), and ops that
are bound as they stand (`while`, `cond`, Pallas kernels, callbacks, ...).

Three things are translated on the way:

- `remat` that has been differentiated: its inputs pass an optimization barrier, then its body is inlined. That is how
  JAX itself keeps XLA from undoing it.
- `optimization_barrier`: one op for each operand, all of one `group`, so that each operand is placed on its own.
- `with_sharding_constraint` to a NamedSharding: a pin (`sbp_constrain`, not strict) of the axes that it names; other
  constraints of layout or sharding are dropped. Also within what is bound as it stands, where the pin is an identity.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from sbpjax import compat
from sbpjax.pinning import constrain_p
from sbpjax.program.draft import Draft, DraftOp
from sbpjax.program.graph import Constant, Operand
from sbpjax.program.nested import rewritten
from sbpjax.program.scopes import Origin, origin_of
from sbpjax.program.userlines import innermost_user_line
from sbpjax.sbp import S, Sbp

INLINED: Final = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "custom_vmap_call": "call",
    "custom_partitioning": "call",
}
"""Primitives that only group equations, and the parameter that holds them."""


class Flattener:
    """Flattens one jaxpr into `draft`; a loop's body has a flattener of its own.

    Attributes:
        draft: what has been made so far.
        captured: arrays known while tracing that are too large to be constants, by identity: their tensor and value.
            They become inputs of the program, or further constants of the loop.
    """

    def __init__(self, groups: Iterator[int] | None = None) -> None:
        self.draft = Draft()
        self.captured: dict[int, tuple[int, Any]] = {}
        self._origins: dict[Any, Origin] = {}
        self._groups = groups if groups is not None else itertools.count()

    def run(
        self,
        jaxpr: Any,
        consts: Sequence[Any],
        operands: Sequence[Operand],
        stack: tuple[Any, ...] = (),
        location: str = "",
    ) -> list[Operand]:
        """Append the equations of an open jaxpr; `stack` and `location` are those of the equation around it."""
        env: dict[Any, Operand] = dict(zip(jaxpr.invars, operands, strict=True))
        env.update((var, self._constant(value, var.aval)) for var, value in zip(jaxpr.constvars, consts, strict=True))

        def read(atom: Any) -> Operand:
            return self._constant(atom.val, atom.aval) if isinstance(atom, compat.Literal) else env[atom]

        for eqn in jaxpr.eqns:
            name = eqn.primitive.name
            inputs = [read(atom) for atom in eqn.invars]
            here, line = stack + compat.stack_elements(eqn), innermost_user_line(eqn) or location
            if (inner := INLINED.get(name)) is not None:
                outputs = self.run(*compat.opened(eqn.params[inner]), inputs, here, line)
            elif (translate := TRANSLATED.get(name)) is not None:
                outputs = translate(self, eqn, inputs, here, line)
            else:
                op = self._append(eqn.primitive, _bare_params(eqn.params), inputs, _avals(eqn.outvars), here, line)
                op.effects = compat.has_effects(eqn)
                outputs = op.outputs
            env.update(zip(eqn.outvars, outputs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _constant(self, value: Any, aval: Any) -> Operand:
        """A scalar is a constant; a larger array is captured."""
        if aval.ndim == 0:
            return Constant(_scalar(value, aval), compat.bare_aval(aval))
        if id(value) not in self.captured:
            self.captured[id(value)] = self.draft.tensor(compat.bare_aval(aval)), value
        return self.captured[id(value)][0]

    def _append(
        self,
        primitive: Any,
        params: dict[str, Any],
        inputs: list[Operand],
        avals: Sequence[Any],
        stack: tuple[Any, ...],
        location: str,
    ) -> DraftOp:
        if (origin := self._origins.get(stack)) is None:
            origin = self._origins[stack] = origin_of(*compat.take_apart(stack))
        op = DraftOp(primitive, params, inputs, [self.draft.tensor(aval) for aval in avals], origin, location)
        self.draft.ops.append(op)
        return op

    def _remat(self, eqn: Any, inputs: list[Operand], stack: tuple[Any, ...], location: str) -> list[Operand]:
        prevent_cse = eqn.params["prevent_cse"]
        if eqn.params["differentiated"] and prevent_cse:
            chosen = [prevent_cse] * len(inputs) if isinstance(prevent_cse, bool) else prevent_cse
            inputs = self._behind_barrier(inputs, _avals(eqn.invars), chosen, stack, location)
        return self.run(*compat.opened(eqn.params["jaxpr"]), inputs, stack, location)

    def _barrier(self, eqn: Any, inputs: list[Operand], stack: tuple[Any, ...], location: str) -> list[Operand]:
        return self._behind_barrier(inputs, _avals(eqn.invars), [True] * len(inputs), stack, location)

    def _behind_barrier(
        self,
        inputs: list[Operand],
        avals: list[Any],
        chosen: Sequence[bool],
        stack: tuple[Any, ...],
        location: str,
    ) -> list[Operand]:
        group = next(self._groups)
        outputs: list[Operand] = []
        for operand, aval, goes in zip(inputs, avals, chosen, strict=True):
            if goes and not isinstance(operand, Constant):
                op = self._append(compat.optimization_barrier_p, {}, [operand], [aval], stack, location)
                op.group = group
                operand = op.outputs[0]
            outputs.append(operand)
        return outputs

    def _pin(self, eqn: Any, inputs: list[Operand], stack: tuple[Any, ...], location: str) -> list[Operand]:
        pins = _pins(eqn.params["sharding"])
        if not pins or isinstance(inputs[0], Constant):
            return inputs
        params = {"pins": pins, "strict": False}
        return [self._append(constrain_p, params, inputs, _avals(eqn.outvars), stack, location).outputs[0]]

    def _scan(self, eqn: Any, inputs: list[Operand], stack: tuple[Any, ...], location: str) -> list[Operand]:
        jaxpr, consts = compat.opened(eqn.params["jaxpr"])
        loop = Flattener(self._groups)
        body, fixed = loop.draft, eqn.params["num_consts"]

        def body_operand(position: int) -> Operand:
            operand = inputs[position]
            if position < fixed and isinstance(operand, Constant):
                return operand
            return body.tensor(compat.bare_aval(jaxpr.invars[position].aval))

        operands = [body_operand(position) for position in range(len(inputs))]
        body.outputs = loop.run(jaxpr, consts, operands, stack, location)
        # Constants of the loop: those it had (scalars went straight into the body) and those captured within it.
        kept = [position for position in range(fixed) if not isinstance(operands[position], Constant)]
        captured = [(tensor, self._constant(value, body.avals[tensor])) for tensor, value in loop.captured.values()]
        body_inputs = [operands[i] for i in kept] + [tensor for tensor, _ in captured] + operands[fixed:]
        body.inputs = [tensor for tensor in body_inputs if not isinstance(tensor, Constant)]
        outer = [inputs[i] for i in kept] + [operand for _, operand in captured] + inputs[fixed:]
        params = {name: eqn.params[name] for name in ("length", "reverse", "unroll", "num_carry")}
        params["num_consts"] = len(kept) + len(captured)
        op = self._append(eqn.primitive, params, outer, _avals(eqn.outvars), stack, location)
        op.body, op.repeats, op.effects = body, eqn.params["length"], compat.has_effects(eqn)
        return list(op.outputs)

    def _same(self, eqn: Any, inputs: list[Operand], stack: tuple[Any, ...], location: str) -> list[Operand]:
        return inputs


TRANSLATED: Final[Mapping[str, Callable[..., list[Operand]]]] = {
    "scan": Flattener._scan,
    "optimization_barrier": Flattener._barrier,
    "sharding_constraint": Flattener._pin,
    **dict.fromkeys(("remat2", "remat", "checkpoint"), Flattener._remat),
    **dict.fromkeys(("reshard", "mesh_cast", "layout_constraint", "name"), Flattener._same),
}


_OF_A_MESH: Final = frozenset(("sharding", "out_sharding"))


def _avals(atoms: Sequence[Any]) -> list[Any]:
    return [compat.bare_aval(atom.aval) for atom in atoms]


def _bare_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters without those that speak of a user's explicit mesh: the layout takes their place."""
    return {name: None if name in _OF_A_MESH else value for name, value in rewritten(params, _bare_equation).items()}


def _bare_equation(eqn: Any) -> Any:
    """An equation within an op's parameters, without what speaks of a mesh."""
    if eqn.primitive.name == "sharding_constraint":
        return eqn.replace(primitive=constrain_p, params={"pins": _pins(eqn.params["sharding"]), "strict": False})
    if TRANSLATED.get(eqn.primitive.name) is Flattener._same:
        return eqn.replace(primitive=constrain_p, params={"pins": (), "strict": False})
    if any(eqn.params.get(name) is not None for name in _OF_A_MESH):
        return eqn.replace(params=eqn.params | dict.fromkeys(_OF_A_MESH & eqn.params.keys()))
    return eqn


def _scalar(value: Any, aval: Any) -> Any:
    """A literal as something to bind: a Python number where it is weakly typed, a PRNG key as it is."""
    if jnp.issubdtype(aval.dtype, jax.dtypes.extended):
        return value
    scalar = np.asarray(value, dtype=aval.dtype)[()]
    weak = aval.weak_type and jnp.result_type(scalar.item()) == aval.dtype
    return scalar.item() if weak else scalar


def _pins(sharding: Any) -> tuple[tuple[str, Sbp], ...]:
    """The axes that a sharding constraint splits dimensions by."""
    if not isinstance(sharding, NamedSharding):
        return ()
    pins: list[tuple[str, Sbp]] = []
    for dim, axes in enumerate(sharding.spec):
        if axes is None or axes is PartitionSpec.UNCONSTRAINED:
            continue
        pins += [(axis, S(dim)) for axis in ((axes,) if isinstance(axes, str) else axes)]
    return tuple(sorted(pins, key=lambda pin: pin[0]))
