"""The one place that touches private parts of JAX and Flax.

Everything here is small, and says which private name it hides. Written for jax 0.10; where 0.11 is known to differ,
both are served.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from flax.nnx import extract, graphlib, variablelib
from flax.nnx.transforms import compilation as nnx_compilation
from jax._src import compiler, core, source_info_util
from jax._src.interpreters import mlir, partial_eval, pxla
from jax._src.lax import lax as lax_internal
from jax._src.lib import _jax as xla_client  # pyright: ignore[reportPrivateImportUsage]
from jax._src.lib.mlir import ir  # pyright: ignore[reportPrivateImportUsage]
from jax._src.state.types import AbstractRef
from jax.extend.core import Literal as Literal

ShapedArray: Any = core.ShapedArray
optimization_barrier_p: Any = lax_internal.optimization_barrier_p

# --- jit ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JitOptions:
    """Which arguments of a function are compile-time constants, and which buffers its caller gives away."""

    static_argnums: tuple[int, ...] = ()
    static_argnames: tuple[str, ...] = ()
    donate_argnums: tuple[int, ...] = ()
    donate_argnames: tuple[str, ...] = ()


def is_jitted(fn: Any) -> bool:
    """Whether `jax.jit` made this."""
    return hasattr(fn, "_jit_info") and hasattr(fn, "__wrapped__")


def under_jit(fn: Any) -> Callable[..., Any]:
    """The function that was given to `jax.jit`."""
    return fn.__wrapped__


def jit_options(fn: Any) -> JitOptions:
    """Options of a `jax.jit`-ted function, names and positions already completed from its signature."""
    info = fn._jit_info
    return JitOptions(
        tuple(info.static_argnums),
        tuple(info.static_argnames),
        tuple(info.donate_argnums),
        tuple(info.donate_argnames),
    )


# --- jaxprs ------------------------------------------------------------------------------------------------------


def opened(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    """A closed or open jaxpr as (open jaxpr, values of its constvars)."""
    return getattr(jaxpr, "jaxpr", jaxpr), getattr(jaxpr, "consts", ())


def is_jaxpr(value: Any) -> bool:
    """Whether a parameter of an equation is a jaxpr, closed or open."""
    return isinstance(value, core.Jaxpr | core.ClosedJaxpr)


def without_dead_code(jaxpr: Any) -> Any:
    """An open jaxpr without equations that nobody reads, also inside loops; inputs and outputs stay."""
    return partial_eval.dce_jaxpr(jaxpr, True, instantiate=True)[0]


def is_ref(aval: Any) -> bool:
    """Whether this is the abstract value of a mutable array."""
    return isinstance(aval, AbstractRef)


def captured_tracers(traced: Any) -> Sequence[Any]:
    """Values of another trace, still going on or over, that a traced function has closed over."""
    return traced._consts


def has_effects(eqn: Any) -> bool:
    """Whether an equation must stay although nobody reads its results."""
    return partial_eval.has_effects(eqn)


def aval_of(leaf: Any) -> Any:
    """Shape, dtype and weak type of anything that `jax.jit` takes as an array, shapes included.

    Raises:
        TypeError: it is none.
    """
    return core.shaped_abstractify(leaf)


def bare_aval(aval: Any) -> Any:
    """An abstract value without the sharding that a user's explicit mesh gives it."""
    sharding = getattr(aval, "sharding", None)
    if sharding is None or sharding.mesh.empty:
        return aval
    return core.ShapedArray(aval.shape, aval.dtype, weak_type=aval.weak_type)


# --- where an equation comes from --------------------------------------------------------------------------------


class Stack(NamedTuple):
    """A name stack taken apart: user and module scopes in order, and the JAX transformations around them."""

    scopes: tuple[str, ...]
    transforms: frozenset[str]


def stack_elements(eqn: Any) -> tuple[Any, ...]:
    """The (hashable) elements of an equation's name stack, relative to the jaxpr that it stands in."""
    return eqn.source_info.name_stack.stack


def take_apart(elements: Sequence[Any]) -> Stack:
    """Split the elements of a name stack into scopes and transformations."""
    scopes, transforms = [], set()
    for element in elements:
        if isinstance(element, source_info_util.Transform):
            transforms.add(element.name)
        else:
            scopes.append(element.name)
    return Stack(tuple(scopes), frozenset(transforms))


def code_frames(eqn: Any) -> Iterator[tuple[Any, int]]:
    """The (code object, instruction) pairs of the Python frames that made an equation, innermost first."""
    traceback = eqn.source_info.traceback
    return zip(*traceback.raw_frames(), strict=True) if traceback else iter(())


def line_number(code: Any, instruction: int) -> int:
    """The source line of a code object's instruction."""
    return source_info_util.raw_frame_to_frame(code, instruction).start_line


# --- nnx ---------------------------------------------------------------------------------------------------------

NnxJitted: Any = nnx_compilation.JitWrapped
NnxTreeJitted: tuple[Any, ...] = (nnx_compilation.SimpleJitWrapped, nnx_compilation.SimpleJitPartialWrapped)


def is_nnx_node(x: Any) -> bool:
    """Whether nnx treats this as a stateful object (a module, optimizer, metric, rngs or variable)."""
    return graphlib.is_graph_node(x) or isinstance(x, variablelib.Variable)


def is_mutable_array(x: Any) -> bool:
    """Whether this is a `jax.Ref`, or an nnx variable that keeps its value in one."""
    return variablelib.is_array_ref(x.get_raw_value() if isinstance(x, variablelib.Variable) else x)


def nnx_hijax(x: Any) -> bool:
    """Whether a variable is of the kind that `nnx.jit` itself cannot take."""
    return isinstance(x, variablelib.Variable) and bool(getattr(x, "hijax", False))


def nnx_context(jitted: Any) -> contextlib.AbstractContextManager[Any]:
    """The context in which nnx matches the objects that go into a call with those that come out."""
    return graphlib.update_context(jitted)


def nnx_split(jitted: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with nnx objects replaced by pytrees of their state; within `nnx_context`."""
    return jitted._get_pure_args_kwargs(args, kwargs)


def nnx_update(jitted: Any, pure_results: tuple[Any, Any, Any]) -> Any:
    """Write new state into the caller's objects and return the user's result; within `nnx_context`."""
    return jitted._get_non_pure_out(*pure_results)


def nnx_inner(jitted: Any) -> tuple[Callable[..., Any], Any]:
    """The user's function and the `jax.jit`-ted pure function of an `nnx.jit`-ted one."""
    return jitted.fun, jitted.jitted_fn


def nnx_nodes_only(tree: Any) -> Any:
    """Arguments as nnx returns them: objects kept, everything else dropped."""
    return extract.clear_non_graph_nodes(tree)


def nnx_seen() -> Any:
    """A set of objects by identity, to be shared by calls of `nnx_variables`."""
    return graphlib.RefMap()


def nnx_variables(node: Any, seen: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """Path and variable (or array) of everything in an nnx object that is not in `seen`, in the order of its state."""
    _, flat = graphlib.flatten(node, ref_index=seen, graph=True)
    return list(zip(flat.paths, flat.leaves, strict=True))


# --- programs for elsewhere --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Portable:
    """A lowered program that another process can compile.

    Attributes:
        module: StableHLO bytecode, locations included.
        partitions: devices that it is for.
        free_inputs, free_outputs: of which arguments and results XLA may choose the sharding.
        tupled: whether the arguments are passed as one tuple.
        shardy: whether shardings are Shardy's.
        callbacks: whether it calls back into this process.
        mesh: axes and sizes of the mesh that its arguments, results or constraints name; None: there is none.
    """

    module: bytes
    partitions: int
    free_inputs: tuple[bool, ...]
    free_outputs: tuple[bool, ...]
    tupled: bool
    shardy: bool
    callbacks: bool
    mesh: tuple[tuple[str, int], ...] | None = None


def portable(lowered: Any) -> Portable:
    """What another process needs of a `jax.stages.Lowered`."""
    arguments = lowered._lowering.compile_args
    effects = len(arguments["ordered_effects"])
    inputs, outputs = pxla.get_prop_to_input_output(arguments["in_shardings"], arguments["out_shardings"], effects)
    named = [*arguments["in_shardings"], *arguments["out_shardings"], *(arguments["intermediate_shardings"] or ())]
    meshes = [tuple(s.mesh.shape.items()) for s in named if isinstance(s, jax.sharding.NamedSharding)]
    written = io.BytesIO()
    lowered.compiler_ir("stablehlo").operation.write_bytecode(written)
    return Portable(
        written.getvalue(),
        arguments["num_devices"],
        tuple(inputs),
        tuple(outputs),
        bool(arguments["tuple_args"]),
        bool(jax.config.values["jax_use_shardy_partitioner"]),
        bool(arguments["host_callbacks"]),
        max(meshes, key=lambda mesh: math.prod(n for _, n in mesh), default=None),
    )


def compile_portable(program: Portable, devices: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """The executable of a program for devices, which need not be there (`jax.experimental.topologies`)."""
    devices = list(devices)[: program.partitions]
    backend = devices[0].client
    jax.config.update("jax_use_shardy_partitioner", program.shardy)
    with mlir.make_ir_context():
        module = ir.Module.parse(program.module)
        compile_options = compiler.get_compile_options(
            num_replicas=1,
            num_partitions=program.partitions,
            device_assignment=np.array([[device.id for device in devices]]),
            env_options_overrides=dict(options),
            backend=backend,
        )
        build = compile_options.executable_build_options
        compile_options.parameter_is_tupled_arguments = program.tupled
        build.allow_spmd_sharding_propagation_to_parameters = list(program.free_inputs)
        build.allow_spmd_sharding_propagation_to_output = list(program.free_outputs)
        return compiler.backend_compile_and_load(
            backend, module, xla_client.DeviceList(tuple(devices)), compile_options, []
        )
