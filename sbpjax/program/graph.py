"""What a traced function is: ops that read and write named tensors, in an order that runs.

A `Graph` is a jaxpr made flat: calls that only group equations are inlined, loops keep their bodies as graphs of their
own, and every op remembers which module, phase and source line of the user's model it came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

Phase: TypeAlias = Literal["forward", "backward", "remat", "update"]


@dataclass(frozen=True, slots=True)
class Source:
    """Where an op came from.

    Attributes:
        module: Flax module path such as `layers_0/attention/query`, empty where there is none.
        phase: `forward`; `backward` (transposed); `remat` (recomputed in the backward pass); `update` (neither, and it
            depends on a gradient or serves only ops that do).
        location: `train.py:41`, the innermost frame in the user's own code; empty where it is unknown.
    """

    module: str = ""
    phase: Phase = "forward"
    location: str = ""

    def __str__(self) -> str:
        where = self.module or "top level"
        return f"{where} ({self.phase}{', ' + self.location if self.location else ''})"


@dataclass(frozen=True, slots=True)
class Tensor:
    """One value of the graph.

    Attributes:
        aval: JAX's abstract value: `.shape`, `.dtype` (also of PRNG keys), `.weak_type`.
        name: a path for an input (`state.params.layers_0.kernel`), else its op's primitive and module.
    """

    aval: Any
    name: str

    @property
    def shape(self) -> tuple[int, ...]:
        """The global shape."""
        return tuple(self.aval.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element; a PRNG key counts all its words."""
        dtype = self.aval.dtype
        if jnp.issubdtype(dtype, jax.dtypes.extended):
            words = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct((), dtype))
            return int(np.prod(words.shape)) * words.dtype.itemsize
        return int(np.dtype(dtype).itemsize)

    @property
    def bytes(self) -> int:
        """Bytes of the whole tensor."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.itemsize


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A literal operand: a small array known while tracing (scalars, in practice)."""

    value: Any
    aval: Any


Operand: TypeAlias = int | Constant
"""An index into `Graph.tensors`, or a constant."""


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One primitive applied.

    Attributes:
        primitive: the JAX primitive to bind; a `scan` has its body in `body`, not in `params`, which keep `length`,
            `reverse`, `unroll`, `num_consts` and `num_carry`.
        params: its parameters, as in the jaxpr equation.
        inputs: what it reads, in the primitive's order.
        outputs: indices of the tensors that it writes.
        source: where it came from.
        body: the loop's body for `scan`: inputs are constants, carry, one slice of each scanned operand; outputs are
            the carry and one slice of each stacked result.
        repeats: how often the body runs.
        group: ops of one optimization barrier share a number and stand side by side, one op an operand, so that each
            operand is planned alone and all are emitted as one barrier.
    """

    primitive: Any
    params: Mapping[str, Any]
    inputs: tuple[Operand, ...]
    outputs: tuple[int, ...]
    source: Source
    body: Graph | None = None
    repeats: int = 1
    group: int | None = None

    @property
    def name(self) -> str:
        """The primitive's name."""
        return self.primitive.name


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Ops in a runnable order over numbered tensors.

    Attributes:
        tensors: every value that is read or written.
        ops: in topological order.
        inputs: tensors that come from outside, in order.
        outputs: what is returned, in order.
    """

    tensors: tuple[Tensor, ...]
    ops: tuple[Op, ...]
    inputs: tuple[int, ...]
    outputs: tuple[Operand, ...]
    _cache: dict[str, Any] = field(default_factory=dict, repr=False)

    def aval(self, operand: Operand) -> Any:
        """The abstract value of an operand."""
        return operand.aval if isinstance(operand, Constant) else self.tensors[operand].aval

    def readers(self) -> list[list[tuple[int, int]]]:
        """For each tensor, the (op, operand position) pairs that read it. Returned results are not counted."""
        if "readers" not in self._cache:
            readers: list[list[tuple[int, int]]] = [[] for _ in self.tensors]
            for i, op in enumerate(self.ops):
                for k, operand in enumerate(op.inputs):
                    if not isinstance(operand, Constant):
                        readers[operand].append((i, k))
            self._cache["readers"] = readers
        return self._cache["readers"]

    def walk(self, repeats: int = 1) -> Iterator[tuple[Graph, Op, int]]:
        """All ops, those of loop bodies included, each with its graph and how often it runs in one step."""
        for op in self.ops:
            yield self, op, repeats
            if op.body is not None:
                yield from op.body.walk(repeats * op.repeats)
