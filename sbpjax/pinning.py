"""`constrain`: a pin on a value inside the user's own function; the identity wherever sbpjax does not look."""

from __future__ import annotations

from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from sbpjax.sbp import Broadcast, P, S, Sbp

constrain_p = Primitive("sbp_constrain")
"""Identity with parameters `pins: tuple[tuple[str, Sbp], ...]`, sorted by axis, and `strict: bool`: whether a pin that
cannot hold is an error (ours) or dropped (a `with_sharding_constraint`, which is written for one mesh)."""


def constrain(x: Any, **axes: Sbp) -> Any:
    """Pin the placement of `x` on some mesh axes, and leave the others to the planner.

    `constrain(h, data=S(0), model=B)` asks that `h` be split along its first dimension over `data` and whole over
    `model`. It is the identity outside sbpjax, and under jit, grad, vmap and scan. Gradients are not pinned: their
    placement is for the planner to choose. `P()` asks for a partial value (to say where *not* to reduce); it is
    allowed where the ops that follow can take it, and planning refuses it where they cannot. Whether an axis exists is
    checked when a plan is made.

    Args:
        x: an array, or a pytree of arrays that are all pinned alike.
        **axes: mesh axis to `S(dim)`, `B` or `P(op)`. A negative dimension counts from the end.

    Raises:
        TypeError: a value that is none of S, B, P.
        ValueError: a dimension outside the rank, or partial axes with different ops.
    """
    for axis, sbp in axes.items():
        if not isinstance(sbp, S | Broadcast | P):
            raise TypeError(f"constrain({axis}={sbp!r}): give S(dim), B or P(op)")
    ops = {sbp.op for sbp in axes.values() if isinstance(sbp, P)}
    if len(ops) > 1:
        raise ValueError(f"constrain: one tensor's partial axes share one op, got {', '.join(sorted(ops))}")
    if not axes:
        return x
    return jax.tree.map(lambda leaf: _pin(jax.numpy.asarray(leaf), axes), x)


def _pin(x: Any, axes: dict[str, Sbp]) -> Any:
    pins = []
    for axis, sbp in sorted(axes.items()):
        if isinstance(sbp, S):
            if not -x.ndim <= sbp.dim < x.ndim:
                raise ValueError(f"constrain({axis}={sbp}): the array has rank {x.ndim}, shape {x.shape}")
            sbp = S(sbp.dim % x.ndim)
        pins.append((axis, sbp))
    return constrain_p.bind(x, pins=tuple(pins), strict=True)


@constrain_p.def_impl
def _identity(x: Any, **_: Any) -> Any:
    return x


@constrain_p.def_abstract_eval
def _same_aval(x: Any, **_: Any) -> Any:
    return x


def _batched(operands: Any, batch_dims: Any, *, pins: tuple[tuple[str, Sbp], ...], strict: bool) -> Any:
    (x,), (batch,) = operands, batch_dims
    shifted = tuple((axis, S(sbp.dim + (sbp.dim >= batch)) if isinstance(sbp, S) else sbp) for axis, sbp in pins)
    return constrain_p.bind(x, pins=shifted, strict=strict), batch


ad.deflinear2(constrain_p, lambda cotangent, x, **_: [cotangent])
batching.primitive_batchers[constrain_p] = _batched
mlir.register_lowering(constrain_p, lambda context, x, **_: [x])
