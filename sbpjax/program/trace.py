"""`trace`: from the user's function and its arguments, arrays or shapes, to a `Program`."""

from __future__ import annotations

import operator
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import flax.errors
import jax

from sbpjax import compat
from sbpjax.compat import JitOptions
from sbpjax.errors import InvalidOption, NotTraceable
from sbpjax.program.assemble import assemble
from sbpjax.program.call import PlainCall, unwrap_jit
from sbpjax.program.names import function_name
from sbpjax.program.program import Program
from sbpjax.program.stateful import StatefulCall, has_state
from sbpjax.program.userlines import is_users


def trace(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    *,
    static_argnums: int | Sequence[int] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
) -> Program:
    """Trace a function for the shapes of these arguments.

    Args:
        fn: any jittable function. One that is already `jax.jit`-ted or `nnx.jit`-ted keeps its own static and donated
            arguments; those given here are added. nnx objects among the arguments are changed in place, as by
            `nnx.jit`.
        args: positional arguments: arrays, numbers, ShapeDtypeStructs, PRNG keys, pytrees and nnx objects of these
            (`nnx.eval_shape` makes one without memory).
        kwargs: keyword arguments.
        static_argnums: positions that are compile-time constants.
        donate_argnums: positions whose buffers the caller gives away.

    Raises:
        NotTraceable: `fn` is not callable, or JAX cannot trace it.
        ArgumentMismatch: `fn` takes other arguments.
        InvalidOption: `static_argnums` or `donate_argnums` speak of arguments that are not there.
    """
    args, kwargs = tuple(args), dict(kwargs or {})
    options = JitOptions(
        positions("static_argnums", static_argnums, len(args)),
        donate_argnums=positions("donate_argnums", donate_argnums, len(args)),
    )
    call = _call(fn, args, kwargs, options)
    call.check(args, kwargs)
    try:
        traced = call.trace(args, kwargs, _abstract)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError, flax.errors.TraceContextError, TypeError) as error:
        if (refusal := _refusal(call.name, error)) is None:
            raise
        raise refusal from error
    _check_closure(call.name, traced)
    return assemble(call, args, kwargs, traced)


def _call(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: JitOptions) -> PlainCall:
    """The right way to call `fn`."""
    if not callable(fn):
        raise NotTraceable(f"not a function: {fn!r} (a {type(fn).__name__}): pass the step function itself")
    if isinstance(fn, compat.NnxTreeJitted):
        raise NotTraceable(
            f"{function_name(fn)} is nnx.jit-ted in tree mode (graph=False or graph_updates=False), which cannot share "
            "variables between modules: use nnx.jit with its default graph mode, or pass the plain function"
        )
    if isinstance(fn, compat.NnxJitted):
        inner, jitted = compat.nnx_inner(fn)
        return StatefulCall(inner, unwrap_jit(jitted, options)[1])
    inner, options = unwrap_jit(fn, options)
    # What jax.jit was given treats nnx objects as pytrees, as jax.jit does.
    stateful = inner is fn and has_state(fn, args, kwargs)
    return (StatefulCall if stateful else PlainCall)(inner, options)


def positions(option: str, numbers: int | Sequence[int] | None, count: int) -> tuple[int, ...]:
    """Positions among `count` arguments, from 0; negative ones count from the last, as in Python.

    Positions beyond are left to `jax.jit`, which knows whether the function has such an argument.

    Raises:
        InvalidOption: what is given is no position.
    """
    if numbers is None:
        return ()
    try:
        given = tuple(map(operator.index, (numbers,) if isinstance(numbers, int) else tuple(numbers)))
    except TypeError as error:
        raise InvalidOption(f"{option}={numbers!r}: give the position of an argument, or several positions") from error
    if any(n < -count for n in given):
        raise InvalidOption(
            f"{option}={numbers!r}: there are {count} positional arguments; give one of their positions"
        )
    return tuple(n + count if n < 0 else n for n in given)


def _abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    """Shape and dtype of a leaf, without its sharding."""
    aval = compat.aval_of(leaf)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def _check_closure(name: str, traced: Any) -> None:
    """Refuse a function that closes over what cannot be an input."""
    if compat.captured_tracers(traced):
        raise NotTraceable(
            f"{name} uses a value that belongs to another traced function, which has stored it outside of itself or "
            "encloses this one: return the value or pass it as an argument"
        )
    jaxpr, _ = compat.opened(traced.jaxpr)
    if any(compat.is_ref(var.aval) for var in jaxpr.constvars):
        raise NotTraceable(f"{name} closes over a mutable array (jax.Ref): pass and return its value instead")


_REMEDIES = {
    jax.errors.TracerBoolConversionError: "use jnp.where or lax.cond instead of Python's if, while, and, or",
    jax.errors.NonConcreteBooleanIndexError: "use jnp.where(mask, x, 0) instead of x[mask]: shapes must be known",
    jax.errors.TracerArrayConversionError: "use jax.numpy instead of numpy on traced values",
    jax.errors.TracerIntegerConversionError: "index with jnp.take or lax.dynamic_slice, or make the number static",
    jax.errors.UnexpectedTracerError: "return the value instead of storing it outside of the function",
    jax.errors.ConcretizationTypeError: "make the argument static (static_argnums), or stay within jax.numpy",
    flax.errors.TraceContextError: "pass the nnx object as an argument instead of closing over it",
}


def _refusal(name: str, error: Exception) -> NotTraceable | None:
    """Our error for one of JAX's that means "not jittable"; None for an ordinary error of the user's."""
    remedy = next((text for kind, text in _REMEDIES.items() if isinstance(error, kind)), None)
    if remedy is None and "valid JAX type" in str(error):
        remedy = "return arrays, numbers and containers of these only"
    if remedy is None:
        return None
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame.filename)]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown line"
    reason = str(error).partition("\n")[0].rstrip(".")
    return NotTraceable(f"{name} cannot be traced, at {where}: {reason}. Remedy: {remedy}")
