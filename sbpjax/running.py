"""`parallelize`: a step that plans itself at its first call."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

import jax
from jax.core import Tracer

from sbpjax.cluster import Cluster
from sbpjax.emit.shardings import named_sharding
from sbpjax.emit.step import EmittedStep
from sbpjax.errors import ArgumentMismatch, NotTraceable, SbpjaxError, UnknownName
from sbpjax.planning import MeshLike, StrategyLike, plan
from sbpjax.plans import EMITTERS, Emitter, Plan


class Options(TypedDict, total=False):
    """The options of `parallelize`, as `sbpjax.plan` has them."""

    cluster: str | Path | Cluster | None
    mesh: MeshLike | None
    strategy: StrategyLike
    like: Plan | None
    memory_limit: int | str | None
    donate_argnums: int | Sequence[int] | None
    static_argnums: int | Sequence[int] | None
    emitter: Emitter


@dataclass(frozen=True, eq=False)
class _Ready:
    """A plan, its emitted step, and where each dynamic leaf of the arguments goes."""

    plan: Plan
    step: EmittedStep
    places: Sequence[jax.sharding.NamedSharding]


class Parallelized:
    """A function that runs on all devices; made by `parallelize`.

    The first call plans and compiles. Arguments that lie elsewhere are moved to where the plan has them. A call with
    other shapes plans again, with the state (what is carried from call to call) placed as before.
    """

    def __init__(self, fn: Callable[..., Any], emitter: Emitter, options: Mapping[str, Any]) -> None:
        if not callable(fn):
            raise NotTraceable(f"parallelize needs a function, got {type(fn).__name__}: pass the step itself")
        if emitter not in EMITTERS:
            raise UnknownName.among("emitter", emitter, EMITTERS)
        self._fn = fn
        self._emitter: Emitter = emitter
        self._options = options
        self._ready: list[_Ready] = []
        functools.update_wrapper(self, fn)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A method of a class has its instance for its first argument, as with `jax.jit` and `nnx.jit`."""
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one step."""
        ready, leaves = self._find(args, kwargs)
        placed = [_place(x, where) for x, where in zip(leaves, ready.places, strict=True)]
        return ready.step.call_with(placed, args, kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered:
        """Plan if need be, and lower the emitted program for these arguments (arrays or shapes)."""
        return self._find(args, kwargs)[0].step.lower(*args, **kwargs)

    @property
    def plan(self) -> Plan:
        """The plan of the latest call.

        Raises:
            SbpjaxError: there was no call yet.
        """
        if not self._ready:
            raise SbpjaxError("nothing is planned yet: call the step once, or lower it, and then read .plan")
        return self._ready[0].plan

    def _find(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[_Ready, list[Any]]:
        """What was prepared for arguments of this form, else a new plan; and the arguments' leaves."""
        for position, ready in enumerate(self._ready):
            program = ready.plan.program
            assert program is not None
            try:
                leaves = program.flatten_call(args, kwargs)
            except ArgumentMismatch:
                continue
            if position:
                self._ready.insert(0, self._ready.pop(position))
            return ready, leaves
        ready = self._prepare(args, kwargs)
        self._ready.insert(0, ready)
        assert ready.plan.program is not None
        return ready, ready.plan.program.flatten_call(args, kwargs)

    def _prepare(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Ready:
        options = dict(self._options)
        if self._ready:
            options["like"] = _state_of(self._ready[0].plan)
        made = plan(self._fn, *args, kwargs=kwargs, **options)
        assert made.program is not None
        mesh = made.make_mesh()
        places = [named_sharding(p, mesh) for p in made.layout.inputs[len(made.program.closure) :]]
        return _Ready(made, made.emit(mesh, self._emitter), places)


def _place(x: Any, where: jax.sharding.NamedSharding) -> Any:
    """The array where the plan has it. One that is there, or that jit may still put anywhere, stays as it is."""
    if isinstance(x, Tracer):
        return x  # under the user's own jit or grad, it is for them to say
    if isinstance(x, jax.Array) and x.committed and not x.sharding.is_equivalent_to(where, x.ndim):
        return jax.device_put(x, where)
    return x


def _state_of(earlier: Plan) -> Plan:
    """A plan reduced to what is carried from call to call."""
    assert earlier.program is not None
    carried = {leaf.path for leaf in earlier.program.leaves if leaf.carried_to is not None}
    state = {path: p for path, p in earlier.placements.items() if path in carried}
    return replace(earlier, placements=state or earlier.placements)


@overload
def parallelize(fn: Callable[..., Any], /, **options: Unpack[Options]) -> Parallelized: ...
@overload
def parallelize(**options: Unpack[Options]) -> Callable[[Callable[..., Any]], Parallelized]: ...
def parallelize(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    cluster: str | Path | Cluster | None = None,
    mesh: MeshLike | None = None,
    strategy: StrategyLike = "auto",
    like: Plan | None = None,
    memory_limit: int | str | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    static_argnums: int | Sequence[int] | None = None,
    emitter: Emitter = "shard_map",
) -> Parallelized | Callable[[Callable[..., Any]], Parallelized]:
    """Make a one-device step run on all devices, planned at its first call. Also a decorator, with or without options.

        step = sbpjax.parallelize(train_step, donate_argnums=0)
        state, metrics = step(state, batch)
        evaluate = sbpjax.parallelize(eval_step, like=step.plan)

    Args:
        fn: any jittable function, also one that is `jax.jit`- or `nnx.jit`-ted.
        emitter: `shard_map` has exactly the plan's collectives; `jit` leaves them to XLA.
        cluster, mesh, strategy, like, memory_limit, donate_argnums, static_argnums: as for `sbpjax.plan`.
    """
    options = {
        "cluster": cluster,
        "mesh": mesh,
        "strategy": strategy,
        "like": like,
        "memory_limit": memory_limit,
        "donate_argnums": donate_argnums,
        "static_argnums": static_argnums,
    }
    if fn is None:
        return lambda f: Parallelized(f, emitter, options)
    return Parallelized(fn, emitter, options)
