"""A rule is a claim: run the op on the parts, put the results together, get the same answer. Here the claim is checked.

Every signature on a mesh is tried with real values: operands are cut up (what is partial, into random summands), the
local op runs once for each simulated device, and the results are put together and compared with the whole op's. No
device mesh is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sbpjax.errors import InvalidRule
from sbpjax.rules.local import run_local
from sbpjax.rules.registry import Applied, rule_of
from sbpjax.rules.rule import Rule, Signature
from sbpjax.rules.signatures import replicated, signatures
from sbpjax.sbp import CombineOp, MeshShape, Placement

Coordinates: TypeAlias = Mapping[str, int]
"""A device's index on each axis."""


def check_rule(
    op: Applied,
    operands: Sequence[Any],
    mesh: MeshShape,
    *,
    rule: Rule | None = None,
    seed: int = 0,
    tolerance: float | None = None,
) -> int:
    """Check every signature that a rule yields for one application of a primitive.

    Args:
        op: the primitive and its parameters (an op of a graph or an equation of a jaxpr).
        operands: concrete values, whole.
        mesh: axis sizes.
        rule: the rule to check; None: the registered one.
        seed: of the random summands.
        tolerance: the error allowed in floating results, relative to their largest entry (or to 1); None: 64 roundings
            of the coarsest floating dtype at hand. Integers, booleans and keys must be equal.

    Returns:
        The number of signatures that were checked.

    Raises:
        InvalidRule: the op has no rule, or a signature does not give the answer of the whole op.
    """
    operands = [jnp.asarray(x) for x in operands]
    bare = replicated(operands, ())
    expected = run_local(op, None, bare, mesh, operands, [x.shape for x in operands], (), _nowhere)
    rule = rule_of(op, operands, expected) if rule is None else rule
    if rule is None:
        raise InvalidRule(f"{op.primitive.name} has no rule with these parameters")
    if tolerance is None:
        tolerance = 64 * max((_rounding(x.dtype) for x in [*operands, *expected]), default=0.0)

    found = signatures(rule, mesh, [x.shape for x in operands], [x.shape for x in expected])
    values, wanted = [_Value(x) for x in operands], [_Value(x) for x in expected]
    for signature in found:
        got = _run(op, rule, signature, mesh, values, wanted, np.random.default_rng(seed))
        for k, (value, want) in enumerate(zip(got, wanted, strict=True)):
            if isinstance(value, str):
                problem = value
            elif (error := _error(value, want.array)) <= tolerance:
                continue
            else:
                problem = f"result {k} is off by {error:.2g} of its largest entry ({tolerance:.2g} allowed)"
            shapes = ", ".join(str(x.shape) for x in operands)
            raise InvalidRule(
                f"the rule of {op.primitive.name} claims that {signature} is right for operands {shapes} on mesh "
                f"{dict(mesh)}, but {problem}"
            )
    return len(found)


def _nowhere(axes: Sequence[str]) -> Any:
    raise InvalidRule(f"an op that runs whole asked for its index along {tuple(axes)}")


class _Value:
    """A whole tensor as a numpy array. A key array shows its words, behind the dimensions that can be split."""

    def __init__(self, x: Any) -> None:
        self.keys = jax.random.key_impl(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else None
        self.shape = x.shape
        self.array = np.asarray(x if self.keys is None else jax.random.key_data(x))

    def wrap(self, part: NDArray[Any]) -> Any:
        return part if self.keys is None else jax.random.wrap_key_data(jnp.asarray(part), impl=self.keys)


def _run(
    op: Applied,
    rule: Rule,
    signature: Signature,
    mesh: MeshShape,
    operands: Sequence[_Value],
    expected: Sequence[_Value],
    rng: np.random.Generator,
) -> Iterator[NDArray[Any] | str]:
    """The results put together, or what is wrong with them."""

    def local(axis_index: Callable[[Sequence[str]], Any], parts: Sequence[Any]) -> list[Any]:
        return run_local(
            op,
            rule,
            signature,
            mesh,
            parts,
            [x.shape for x in operands],
            [x.shape for x in expected],
            axis_index,
        )

    run = local if rule.local is None else _AsOne(local)
    decomposed = [decompose(x.array, p, mesh, rng) for x, p in zip(operands, signature.operands, strict=True)]
    devices = [dict(zip(mesh, at, strict=True)) for at in product(*map(range, mesh.values()))]
    parts: list[list[NDArray[Any]]] = [[] for _ in expected]
    for device in devices:
        own = [
            x.wrap(_cut(summands[_linear(p.partial, device, mesh)], p, device, mesh))
            for x, summands, p in zip(operands, decomposed, signature.operands, strict=True)
        ]
        results = run(lambda axes, device=device: _linear(axes, device, mesh), own)
        for k, result in enumerate(results):
            parts[k].append(_Value(result).array)
    for whole, placement, held in zip(expected, signature.results, parts, strict=True):
        yield recombine(held, placement, devices, mesh, whole.array.shape, whole.array.dtype)


class _AsOne:
    """A local implementation compiled as one, as it is in emission: the device's indices are traced."""

    def __init__(self, local: Callable[..., list[Any]]) -> None:
        self.local = local
        self.asked: list[tuple[str, ...]] = []
        self.function: Any = None

    def __call__(self, axis_index: Callable[[Sequence[str]], Any], parts: Sequence[Any]) -> list[Any]:
        if self.function is None:
            # Which indices it asks for is known once it is traced; only then can they be arguments.
            jax.eval_shape(lambda *parts: self.local(self._asks, parts), *parts)
            lowered = jax.jit(self._flat, keep_unused=True).lower(*self._arguments(axis_index, parts))
            # The text shows a key array as its words; whose keys they are, the types say.
            types = f"{lowered.in_avals} -> {lowered.out_info}"
            self.function = _compiled(_Lowered(lowered.as_text(), types, lowered))
        return self.function(*self._arguments(axis_index, parts))

    def _asks(self, axes: Sequence[str]) -> Any:
        if tuple(axes) not in self.asked:
            self.asked.append(tuple(axes))
        return jnp.int32(0)

    def _arguments(self, axis_index: Callable[[Sequence[str]], Any], parts: Sequence[Any]) -> list[Any]:
        return [*(axis_index(axes) for axes in self.asked), *parts]

    def _flat(self, *arguments: Any) -> list[Any]:
        n = len(self.asked)
        indices = dict(zip(self.asked, arguments[:n], strict=True))
        return self.local(lambda axes: indices[tuple(axes)], arguments[n:])


@dataclass(frozen=True)
class _Lowered:
    text: str
    types: str
    lowered: Any = field(compare=False)


@lru_cache(maxsize=1 << 10)
def _compiled(local: _Lowered) -> Any:
    """Signatures often differ only in which axis does what, and then share one compiled function."""
    return local.lowered.compile()


def _linear(axes: Sequence[str], device: Coordinates, mesh: MeshShape) -> np.int32:
    index = 0
    for axis in axes:
        index = index * mesh[axis] + device[axis]
    return np.int32(index)


def _cut(array: NDArray[Any], placement: Placement, device: Coordinates, mesh: MeshShape) -> NDArray[Any]:
    """The part of a tensor that a device holds."""
    where = []
    for size, axes, n in zip(array.shape, placement.dims, placement.shards(mesh), strict=False):
        own, at = size // n, int(_linear(axes, device, mesh))
        where.append(slice(at * own, (at + 1) * own))
    return array[tuple(where)]


def decompose(
    array: NDArray[Any], placement: Placement, mesh: MeshShape, rng: np.random.Generator
) -> list[NDArray[Any]]:
    """Random tensors, one for each device of the partial axes, that combine to the given one."""
    n = int(np.prod([mesh[axis] for axis in placement.partial], dtype=np.int64))
    if placement.op is None:
        return [array]
    if placement.op == "sum":
        summands = [rng.integers(-2, 3, array.shape).astype(array.dtype) for _ in range(n - 1)]
        wide = _wide(array)
        with np.errstate(all="ignore"):
            last = wide - sum((_wide(x) for x in summands), np.zeros_like(wide))
        return [*summands, np.asarray(last).astype(array.dtype)]
    # One device holds each extreme; the others hold something that it beats, taken from elsewhere in the tensor.
    beaten = np.fmin if placement.op == "max" else np.fmax
    owner = rng.integers(0, n, array.shape)
    shuffled = [rng.permutation(np.array(array).reshape(-1)).reshape(array.shape) for _ in range(n)]
    return [np.where(owner == i, array, beaten(array, shuffled[i])) for i in range(n)]


_COMBINE: dict[CombineOp, np.ufunc] = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def recombine(
    parts: Sequence[NDArray[Any]],
    placement: Placement,
    devices: Sequence[Coordinates],
    mesh: MeshShape,
    shape: Sequence[int],
    dtype: Any,
) -> NDArray[Any] | str:
    """The tensor whose parts the devices hold (floats in float64), or why they are not the parts of one."""
    local_shape = (*placement.local_shape(shape[: placement.rank], mesh), *shape[placement.rank :])
    where = np.arange(int(np.prod(shape, dtype=np.int64))).reshape(tuple(shape))
    whole: dict[bytes, dict[int, NDArray[Any]]] = {}
    for part, device in zip(parts, devices, strict=True):
        if part.shape != local_shape or part.dtype != dtype:
            return f"a device's part is {part.dtype}{part.shape} instead of {dtype}{local_shape}"
        held = whole.setdefault(_cut(where, placement, device, mesh).tobytes(), {})
        summand = int(_linear(placement.partial, device, mesh))
        if not _same(held.setdefault(summand, part), part):
            return "devices that should hold the same part differ"
    result = np.zeros(tuple(shape), _wide(np.zeros((), dtype)).dtype).reshape(-1)
    for positions, summands in whole.items():
        wide = [_wide(part) for part in summands.values()]
        with np.errstate(all="ignore"):
            total = wide[0] if placement.op is None else _COMBINE[placement.op].reduce(np.stack(wide))
        result[np.frombuffer(positions, where.dtype)] = np.asarray(total).reshape(-1)
    return result.reshape(tuple(shape))


def _wide(array: NDArray[Any]) -> NDArray[Any]:
    """Floats in float64, so that adding up does not round; integers as they are, so that they wrap around."""
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        return array.astype(np.complex128)
    return array.astype(np.float64) if jnp.issubdtype(array.dtype, jnp.floating) else array


def _rounding(dtype: Any) -> float:
    return float(jnp.finfo(dtype).eps) if jnp.issubdtype(dtype, jnp.inexact) else 0.0


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    a, b = _wide(a), _wide(b)
    return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


def _error(got: NDArray[Any], want: NDArray[Any]) -> float:
    """The largest difference relative to the largest entry: 0 where all are equal, infinite where nan or inf differ."""
    want = _wide(want)
    if want.dtype.kind not in "fc":
        return 0.0 if _same(got, want) else np.inf
    finite = np.isfinite(want)
    if not _same(got[~finite], want[~finite]):
        return np.inf
    if not finite.any():
        return 0.0
    scale = max(1.0, float(np.abs(want[finite]).max()))
    return float(np.nan_to_num(np.abs(got[finite] - want[finite]), nan=np.inf).max()) / scale
