"""Ops that work on each element by itself: every dimension is parallel, and what is linear or increasing passes P.

A sum passes where the op is linear: in all operands together (`x + y` of two partial values is partial; of a partial
and a whole one it would count the whole one once for each device), or in each operand alone (`x * y`). A maximum or
minimum passes where the op is increasing: `max(exp x) = exp(max x)`; never through one that decreases, as `neg`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import jax.numpy as jnp
import numpy as np

from sbpjax.rules.notation import build, names, text
from sbpjax.rules.registry import rule
from sbpjax.rules.rule import ANY_OP, Passes, Rule
from sbpjax.sbp import CombineOp

Linear: TypeAlias = Literal["jointly", "in each", "in the first"]
EXTREMES: tuple[CombineOp, ...] = ("max", "min")


def pointwise(*primitives: Any, linear: Linear | None = None, increasing: bool = False) -> None:
    """Register elementwise primitives.

    Args:
        primitives: names or JAX primitives.
        linear: in which operands a sum passes; None: in none.
        increasing: whether a maximum or minimum of the only operand passes.
    """

    @rule(*primitives)
    def elementwise(operands: Sequence[Any], results: Sequence[Any], **_: Any) -> Rule:
        everyone = tuple(range(len(operands)))
        match linear:
            case "jointly":
                passes = [Passes(everyone)]
            case "in each":
                passes = [Passes((k,)) for k in everyone]
            case "in the first":
                passes = [Passes((0,))]
            case None:
                passes = []
        if increasing:
            passes.append(Passes((0,), EXTREMES))
        return aligned(operands, results, passes=passes)


def aligned(
    operands: Sequence[Any], results: Sequence[Any], *, passes: Sequence[Passes] = (), flops: float | None = None
) -> Rule:
    """The rule of an op whose operands all look like its one result; scalars and dimensions of size 1 are repeated."""
    (result,) = results
    dims = names(len(result.shape))
    return build(
        text([_repeated(operand.shape, result.shape, dims) for operand in operands], [dims]),
        operands,
        results,
        passes=passes,
        flops=flops,
        fusible=True,
        fuses_operands=True,
    )


def _repeated(shape: Sequence[int], result_shape: Sequence[int], dims: Sequence[str]) -> list[str]:
    if not shape:
        return []
    return [name if size == full else "_" for size, full, name in zip(shape, result_shape, dims, strict=True)]


pointwise("add", "add_any", "sub", "complex", linear="jointly")
pointwise("mul", linear="in each")
pointwise("neg", "real", "imag", "conj", linear="in the first")

pointwise("exp", "exp2", "expm1", "cbrt", "logistic", "erf", "tanh", "sinh", "asinh", "atan", increasing=True)
pointwise("floor", "ceil", "round", "sign", "reduce_precision", increasing=True)

# Increasing where they are defined; but one device's part of a maximum may lie outside, and nan beats every number.
pointwise("log", "log1p", "sqrt", "erf_inv", "asin", "atanh", "acosh")

pointwise("abs", "square", "rsqrt", "pow", "rem", "nextafter", "is_finite", "mulhi")
pointwise("sin", "cos", "tan", "acos", "cosh", "atan2")
pointwise("eq", "ne", "lt", "le", "gt", "ge", "eq_to", "lt_to", "le_to")
pointwise("not", "xor", "shift_left", "shift_right_logical", "shift_right_arithmetic", "population_count", "clz")
pointwise("erfc", "lgamma", "digamma", "polygamma", "zeta", "bessel_i0e", "bessel_i1e")
pointwise("igamma", "igammac", "igamma_grad_a", "regularized_incomplete_beta")


@rule("div")
def div(operands: Sequence[Any], results: Sequence[Any], **_: Any) -> Rule:
    """Linear in the numerator, unless it rounds."""
    exact = jnp.issubdtype(results[0].dtype, jnp.inexact)
    return aligned(operands, results, passes=[Passes((0,))] if exact else [])


@rule("integer_pow")
def integer_pow(operands: Sequence[Any], results: Sequence[Any], *, y: int, **_: Any) -> Rule:
    """Increasing for odd powers of real numbers (integers wrap around)."""
    increasing = y > 0 and y % 2 == 1 and jnp.issubdtype(results[0].dtype, jnp.floating)
    return aligned(operands, results, passes=[Passes((0,), EXTREMES)] if increasing else [])


@rule("max")
def maximum(operands: Sequence[Any], results: Sequence[Any], **_: Any) -> Rule:
    """Maxima combine with a maximum; and it is increasing in each operand."""
    return aligned(operands, results, passes=_lattice("max"))


@rule("min")
def minimum(operands: Sequence[Any], results: Sequence[Any], **_: Any) -> Rule:
    """The mirror of `max`."""
    return aligned(operands, results, passes=_lattice("min"))


@rule("or", "and")
def logical(operands: Sequence[Any], results: Sequence[Any], **_: Any) -> Rule:
    """Increasing in each operand for truth values; integers work bit by bit."""
    logic = results[0].dtype == np.bool_
    return aligned(operands, results, passes=[Passes((k,), EXTREMES) for k in range(2)] if logic else [])


def _lattice(op: CombineOp) -> list[Passes]:
    return [Passes((0, 1), (op,)), Passes((0,), EXTREMES), Passes((1,), EXTREMES)]


@rule("clamp")
def clamp(operands: Sequence[Any], results: Sequence[Any], **_: Any) -> Rule:
    """Increasing in the value between the bounds; the bounds may be scalars."""
    return aligned(operands, results, passes=[Passes((1,), EXTREMES)])


@rule("select_n")
def select_n(operands: Sequence[Any], results: Sequence[Any], **_: Any) -> Rule:
    """The cases are partial together, chosen by a predicate that every device has."""
    return aligned(operands, results, passes=[Passes(tuple(range(1, len(operands))), ANY_OP)])


@rule("copy", "stop_gradient", "sbp_constrain", "name")
def identity(operands: Sequence[Any], results: Sequence[Any], **_: Any) -> Rule:
    """The operand itself, partial or not."""
    return aligned(operands, results, passes=[Passes((0,), ANY_OP)], flops=0)


@rule("optimization_barrier", "device_put")
def single_identity(operands: Sequence[Any], results: Sequence[Any], **_: Any) -> Rule | None:
    """The operand itself. A barrier of several has been taken apart by tracing: they share no dimensions."""
    return identity(operands, results) if len(operands) == 1 else None


@rule("convert_element_type")
def convert_element_type(operands: Sequence[Any], results: Sequence[Any], **_: Any) -> Rule:
    """A sum passes where no precision is lost by converting first, an extreme wherever order is kept."""
    old, new = operands[0].dtype, results[0].dtype
    ops: list[CombineOp] = ["sum"] if _widens(old, new) else []
    if _keeps_order(old, new):
        ops += EXTREMES
    return aligned(operands, results, passes=[Passes((0,), tuple(ops))], flops=0)


def _widens(old: Any, new: Any) -> bool:
    """Whether every value of one floating or complex dtype is a value of the other."""
    if not (jnp.issubdtype(old, jnp.inexact) and jnp.issubdtype(new, jnp.inexact)):
        return False
    if jnp.issubdtype(old, jnp.complexfloating) and not jnp.issubdtype(new, jnp.complexfloating):
        return False
    a, b = jnp.finfo(old), jnp.finfo(new)
    return b.nmant >= a.nmant and b.maxexp >= a.maxexp and b.minexp <= a.minexp


def _keeps_order(old: Any, new: Any) -> bool:
    """Whether the conversion is increasing: it rounds at most, and neither wraps around nor overflows to nan."""
    if not all(jnp.issubdtype(d, np.bool_) or jnp.issubdtype(d, jnp.number) for d in (old, new)):
        return False
    if jnp.issubdtype(new, jnp.floating):
        return new.itemsize >= 2 or _widens(old, new)
    return not jnp.issubdtype(old, jnp.inexact) and np.can_cast(old, new)


@rule("bitcast_convert_type")
def bitcast_convert_type(operands: Sequence[Any], results: Sequence[Any], **_: Any) -> Rule:
    """Pointwise; where the width changes, the last dimension of the narrow side holds one element's pieces, whole."""
    dims = names(min(len(operands[0].shape), len(results[0].shape)))
    sides = ([*dims, *["_"] * (len(aval.shape) - len(dims))] for aval in (operands[0], results[0]))
    operand_dims, result_dims = sides
    return build(text([operand_dims], [result_dims]), operands, results, flops=0, fusible=True, fuses_operands=True)
