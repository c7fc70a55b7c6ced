"""The main emitter: the whole step as one local program, with exactly the collectives of the layout.

Every device runs the same program on its own parts (a full-manual `jax.shard_map`). XLA partitions nothing: each
collective is one of the layout's boxings, under the named scope that says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from sbpjax import boxing
from sbpjax.cluster import Links
from sbpjax.emit.collectives import box
from sbpjax.emit.fence import drops_barriers, hidden
from sbpjax.emit.shardings import AnyMesh, partition_spec
from sbpjax.emit.step import EmittedStep
from sbpjax.emit.walk import walk
from sbpjax.layout import Layout
from sbpjax.program.graph import Op, Tensor
from sbpjax.program.program import Program
from sbpjax.rules.local import run_local
from sbpjax.rules.registry import rule_of
from sbpjax.rules.rule import Signature
from sbpjax.sbp import MeshShape, Placement


def emit(program: Program, layout: Layout, links: Links, mesh: AnyMesh) -> EmittedStep:
    """The program under the layout, as one jitted `shard_map`.

    Args:
        program: the traced step.
        layout: a legal layout of it.
        links: by which boxings were priced: the same paths are emitted.
        mesh: axes named and sized as the layout's, all of type Auto. An AbstractMesh will do for lowering.
    """

    def local(*inputs: Any) -> list[Any]:
        return walk(program.graph, layout.body, inputs, _Device(layout.mesh, links, drops_barriers(mesh)))

    def step(*inputs: Any) -> list[Any]:
        return jax.shard_map(
            local,
            mesh=mesh,
            in_specs=tuple(map(partition_spec, layout.inputs)),
            out_specs=list(map(partition_spec, layout.outputs)),
            check_vma=False,
        )(*inputs)

    return EmittedStep(program, layout, mesh, step)


class _Device:
    """One device's view of the program: a `walk.Backend`."""

    def __init__(self, mesh: MeshShape, links: Links, drops_barriers: bool) -> None:
        self.mesh = mesh
        self.links = links
        self.drops_barriers = drops_barriers
        self.numbers = count()
        self.indices: dict[tuple[str, ...], Any] = {}

    def inside(self) -> _Device:
        return _Device(self.mesh, self.links, self.drops_barriers)

    def box(self, x: Any, tensor: Tensor, source: Placement, target: Placement) -> Any:
        if 0 in tensor.shape:  # there is nothing to move, and collectives of nothing do not compile
            return jnp.zeros(target.local_shape(tensor.shape, self.mesh), x.dtype)
        route = boxing.route(source, target, tensor.shape, tensor.itemsize, self.links)
        return box(x, route, tensor.shape, self.mesh, self.axis_index)

    def barrier(self, values: Sequence[Any], shared: Sequence[bool]) -> Sequence[Any]:
        values = lax.optimization_barrier(list(values))
        if not self.drops_barriers:
            return values
        # On an axis of one device the compiler knows the index.
        index = self.axis_index((max(self.mesh, key=self.mesh.__getitem__),))
        return [hidden(x, index, next(self.numbers)) if s else x for x, s in zip(values, shared, strict=True)]

    def run(
        self, op: Op, signature: Signature, operands: Sequence[Any], operand_avals: Any, result_avals: Any
    ) -> Sequence[Any]:
        if not op.outputs:
            return self._once(op, operands)
        return run_local(
            op,
            rule_of(op, operand_avals, result_avals),
            signature,
            self.mesh,
            operands,
            [aval.shape for aval in operand_avals],
            [aval.shape for aval in result_avals],
            self.axis_index,
        )

    def axis_index(self, axes: Sequence[str]) -> Any:
        """The linear index of this device along some axes, major to minor; computed once in each body."""
        axes = tuple(axes)
        if axes not in self.indices:
            last = lax.axis_index(axes[-1])
            if len(axes) > 1:
                last = lax.add(lax.mul(self.axis_index(axes[:-1]), np.int32(self.mesh[axes[-1]])), last)
            self.indices[axes] = last
        return self.indices[axes]

    def _once(self, op: Op, operands: Sequence[Any]) -> Sequence[Any]:
        """An op without results is there for its effect (a print): one device has it, not all."""

        def effect(*operands: Any) -> tuple[()]:
            op.primitive.bind(*operands, **op.primitive.get_bind_params(op.params))
            return ()

        first = lax.eq(self.axis_index(tuple(self.mesh)), np.int32(0))
        return lax.cond(first, effect, lambda *_: (), *operands)
