"""The other emitter: the original step under `jax.jit`, with the layout given to XLA as shardings and constraints.

XLA chooses its own collectives. That a tensor is partial it cannot be told: it is left to find it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from sbpjax.cluster import Links
from sbpjax.emit.shardings import AnyMesh, partition_spec
from sbpjax.emit.step import EmittedStep
from sbpjax.emit.walk import walk
from sbpjax.layout import Layout
from sbpjax.program.graph import Op, Tensor
from sbpjax.program.program import Program
from sbpjax.rules.rule import Signature
from sbpjax.sbp import Placement


def emit(program: Program, layout: Layout, links: Links, mesh: AnyMesh) -> EmittedStep:
    """The program under the layout, as `jax.jit` with sharding constraints.

    Args:
        program: the traced step.
        layout: a legal layout of it.
        links: unused: XLA finds its own paths. It is here so that emitters are interchangeable.
        mesh: axes named and sized as the layout's, all of type Auto.
    """
    del links

    def step(*inputs: Any) -> list[Any]:
        return walk(program.graph, layout.body, inputs, _Whole(mesh))

    return EmittedStep(program, layout, mesh, step)


# XLA's partitioner (jaxlib 0.10.2) gets ops of these kinds wrong when it must choose between conflicting splits of what
# they read and make: a convolution whose input features and whose result's rows are split by one axis, a lookup whose
# table is split by the axis that splits its indices. So nothing is left open there: what is partial is reduced first.
_PINNED = frozenset({"conv_general_dilated", "gather", "pad", "reduce_window", "select_and_scatter_add"})


class _Whole:
    """The whole program as XLA's partitioner sees it: a `walk.Backend`."""

    def __init__(self, mesh: AnyMesh) -> None:
        self.mesh = mesh
        self.shardings: dict[Placement, NamedSharding] = {}

    def inside(self) -> _Whole:
        return self

    def box(self, x: Any, tensor: Tensor, source: Placement, target: Placement) -> Any:
        del tensor, source
        return self._constrain(x, target)

    def barrier(self, values: Sequence[Any], shared: Sequence[bool]) -> Sequence[Any]:
        del shared
        return lax.optimization_barrier(list(values))

    def run(
        self, op: Op, signature: Signature, operands: Sequence[Any], operand_avals: Any, result_avals: Any
    ) -> Sequence[Any]:
        del result_avals
        pinned = op.name in _PINNED or op.name.startswith("scatter")
        if pinned:
            placed = zip(operands, signature.operands, strict=True)
            operands = [self._constrain(x, Placement(placement.dims)) for x, placement in placed]
        results = op.primitive.bind(*operands, **op.primitive.get_bind_params(op.params))
        if not op.primitive.multiple_results:
            results = [results]
        made = []
        for x, placement in zip(results, signature.results, strict=True):
            if pinned:
                placement = Placement(placement.dims)
            alike = {p for p, aval in zip(signature.operands, operand_avals, strict=True) if aval.shape == x.shape}
            # XLA finds by itself that a result lies as its operands do.
            made.append(x if alike == {placement} else self._constrain(x, placement))
        return made

    def _constrain(self, x: Any, placement: Placement) -> Any:
        """Where a placement is partial, the dimensions that it does not split are left to XLA."""
        if not placement.rank or (placement.partial and not placement.split_axes):
            return x
        if placement not in self.shardings:
            self.shardings[placement] = NamedSharding(self.mesh, _open_spec(placement))  # pyright: ignore[reportArgumentType]
        return lax.with_sharding_constraint(x, self.shardings[placement])


def _open_spec(placement: Placement) -> PartitionSpec:
    if not placement.partial:
        return partition_spec(placement)
    return PartitionSpec(*(axes or PartitionSpec.UNCONSTRAINED for axes in placement.dims))
