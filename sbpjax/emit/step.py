"""The emitted step: what the user calls in place of their function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import jax
from jax import lax
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding

from sbpjax.emit.shardings import AnyMesh, closure_shardings, named_sharding
from sbpjax.errors import ArgumentMismatch
from sbpjax.layout import Layout
from sbpjax.program.graph import Graph
from sbpjax.program.program import Program


class EmittedStep:
    """A jitted step with the signature of the function that was planned: call it, or `lower` or `trace` it.

    It refuses arguments of other trees, shapes or dtypes than those that were planned (ArgumentMismatch). Arrays may be
    uncommitted (they are put where the layout wants them) or must lie as `in_shardings` says; an array committed to
    other places is refused rather than moved unseen at every step. Arrays of a mesh with Explicit axes are taken as
    they are. Donation is that of the original function. Values that the function closed over are put on the mesh once,
    split as planned, and are never constants of the compiled program. Inside another `jax.jit` it may be called too.

    Attributes:
        jitted: the `jax.jit` function over the flat leaves, closed-over values first.
    """

    def __init__(self, program: Program, layout: Layout, mesh: AnyMesh, function: Callable[..., Any]) -> None:
        """`function` computes the program's graph outputs from its inputs, as whole (global) arrays."""
        self._program = program
        self._layout = layout
        self._mesh = mesh

        def step(*leaves: Any) -> list[Any]:
            # Whatever mesh the user has set, this program is traced under its own.
            abstract = mesh.abstract_mesh if isinstance(mesh, Mesh) else mesh
            with jax.sharding.use_abstract_mesh(abstract):
                return _as_traced(function(*leaves), program.graph)

        step.__name__ = step.__qualname__ = program.name
        jitted = partial(
            jax.jit,
            step,
            in_shardings=tuple(named_sharding(placement, mesh) for placement in layout.inputs),
            out_shardings=[named_sharding(placement, mesh) for placement in layout.outputs],
            donate_argnums=tuple(i for i, leaf in enumerate(program.leaves) if leaf.donated),
        )
        options = _known_options(layout.compiler_options, mesh)
        self.jitted = jitted(compiler_options=options or None)
        # JAX allows compiler options on the outermost jit only.
        self._inner = jitted() if options else self.jitted

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one step."""
        return self.call_with(self._program.flatten_call(args, kwargs), args, kwargs)

    def call_with(self, leaves: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one step on the leaves of these arguments, as `flatten_call` gives them (placed anew, perhaps)."""
        traced = any(isinstance(x, Tracer) for x in leaves)
        try:
            results = (
                self._inner(*self._closure, *leaves) if traced else self.jitted(*self._closure, *self._settled(leaves))
            )
        except ValueError:
            self._refuse_misplaced(leaves)
            raise
        return self._program.finish(results, args, kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> jax.stages.Traced:
        """As `trace` of a jitted function. Its results are the program's leaves, in order."""
        return self.jitted.trace(*self._closure_shapes, *self._program.flatten_call(args, kwargs))

    def lower(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered:
        """As `lower` of a jitted function."""
        return self.trace(*args, **kwargs).lower()

    def lower_for(self, platform: str) -> jax.stages.Lowered:
        """Lowered for the shapes that were planned, for a platform that need not be there (`cuda`)."""
        graph = self._program.graph
        avals = [graph.aval(tensor) for tensor in graph.inputs]
        shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type) for aval in avals]
        return self.jitted.trace(*shapes).lower(lowering_platforms=(platform,))

    @cached_property
    def _closure(self) -> list[Any]:
        shardings = closure_shardings(self._program, self._layout, self._mesh)
        return [jax.device_put(x, s) for x, s in zip(self._program.closure, shardings, strict=True)]

    @cached_property
    def _carried(self) -> list[tuple[int, NamedSharding]]:
        """Positions among the arguments' leaves of what is carried from call to call, and where it lies."""
        n = len(self._program.closure)
        own = zip(self._program.leaves[n:], self._layout.inputs[n:], strict=True)
        return [(i, named_sharding(p, self._mesh)) for i, (leaf, p) in enumerate(own) if leaf.carried_to is not None]

    def _settled(self, leaves: Sequence[Any]) -> list[Any]:
        """The leaves, those of the state that lie on no mesh yet put on ours.

        To jit, an array on a mesh is of another type than the same array on none: the state that comes back from the
        first call would compile the step a second time.
        """
        settled = list(leaves)
        for i, x in enumerate(settled):
            if isinstance(x, jax.Array) and x.is_deleted():  # on several devices, XLA crashes on such an array
                path = self._program.leaves[len(self._program.closure) + i].path
                raise ArgumentMismatch(
                    f"{self._program.name}: {path} was deleted, as it is when it is donated: pass on what the step "
                    "that took it returned, or do not donate it"
                )
        for i, where in self._carried:
            x = settled[i]
            if not isinstance(x, jax.Array) or not x.committed:
                settled[i] = jax.device_put(x, where)
        return settled

    @property
    def _closure_shapes(self) -> list[jax.ShapeDtypeStruct]:
        graph = self._program.graph
        avals = [graph.aval(tensor) for tensor in graph.inputs[: len(self._program.closure)]]
        return [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]

    def _refuse_misplaced(self, leaves: Sequence[Any]) -> None:
        """Say which argument is committed to another place than the layout's."""
        n = len(self._program.closure)
        for x, leaf, placement in zip(leaves, self._program.leaves[n:], self._layout.inputs[n:], strict=True):
            wanted = named_sharding(placement, self._mesh)
            if isinstance(x, jax.Array) and x.committed and not x.sharding.is_equivalent_to(wanted, x.ndim):
                raise ArgumentMismatch(
                    f"{leaf.path} is committed to {x.sharding}, but the plan has it as {wanted}; move it once, before "
                    "the first step: jax.device_put(args, plan.in_shardings(mesh))"
                )


def _known_options(options: Mapping[str, str | int | bool], mesh: AnyMesh) -> dict[str, str | int | bool]:
    """The compiler options that mean something on the mesh's platform."""
    on_gpu = isinstance(mesh, Mesh) and mesh.devices.flat[0].platform == "gpu"
    return {name: value for name, value in options.items() if on_gpu or not name.startswith("xla_gpu_")}


def _as_traced(results: Sequence[Any], graph: Graph) -> list[Any]:
    """The results with the weak types that the original gives them, so that feeding them back traces nothing anew."""
    typed = []
    for x, output in zip(results, graph.outputs, strict=True):
        aval = graph.aval(output)
        if aval.weak_type != jax.typeof(x).weak_type:
            x = lax.convert_element_type_p.bind(x, new_dtype=aval.dtype, weak_type=aval.weak_type, sharding=None)
        typed.append(x)
    return typed
