"""The vocabulary: Split, Broadcast, Partial, and the placement of one tensor over a named mesh.

On one mesh axis a tensor is *split* along a dimension (`S(d)`), *broadcast* (`B`: every device holds it whole) or
*partial* (`P(op)`: every device holds a summand, to be combined with `op`). A `Placement` says so for all axes of a
mesh at once. Everything here is a frozen value and knows nothing of JAX.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, TypeAlias

CombineOp: TypeAlias = Literal["sum", "max", "min"]
MeshShape: TypeAlias = Mapping[str, int]
"""Axis name to size, major to minor: the last axis lies innermost."""

COMBINE_OPS: Final = ("sum", "max", "min")

KNOWN_AXES: Final = ("data", "model", "sequence", "expert")
"""Mesh axes that may always be spoken of: of size 1 where the mesh lacks them."""


@dataclass(frozen=True, slots=True)
class S:
    """Split along dimension `dim` (never negative)."""

    dim: int

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Held whole by every device of the axis. Use the value `B`."""

    def __repr__(self) -> str:
        return "B"


@dataclass(frozen=True, slots=True)
class P:
    """Partial: the value is the combination, by `op`, of what the devices of the axis hold."""

    op: CombineOp = "sum"

    def __str__(self) -> str:
        return f"P({self.op})"


B: Final = Broadcast()
Sbp: TypeAlias = S | Broadcast | P


@dataclass(frozen=True)
class Placement:
    """The nd-SBP of one tensor: for each dimension the axes that split it, and the axes it is partial over.

    Attributes:
        dims: for each dimension of the tensor, the mesh axes that split it, major to minor (as in PartitionSpec).
        partial: the axes over which the tensor is partial, sorted by name.
        op: how partial values combine; None exactly when `partial` is empty. One tensor has one op.
    """

    dims: tuple[tuple[str, ...], ...]
    partial: tuple[str, ...] = ()
    op: CombineOp | None = None

    def __post_init__(self) -> None:
        axes = [*self.split_axes, *self.partial]
        if len(set(axes)) != len(axes):
            raise ValueError(f"a mesh axis is used twice in {self.dims} + partial {self.partial}")
        if bool(self.partial) != (self.op is not None):
            raise ValueError(f"partial axes {self.partial} and combining op {self.op} must come together")
        if tuple(sorted(self.partial)) != self.partial:
            object.__setattr__(self, "partial", tuple(sorted(self.partial)))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.dims, self.partial, self.op))

    @classmethod
    def broadcast(cls, rank: int) -> Placement:
        """The placement that holds a rank-`rank` tensor whole on every device."""
        return cls(((),) * rank)

    @classmethod
    def of(cls, rank: int, sbp: Mapping[str, Sbp], order: Iterable[str] | None = None) -> Placement:
        """Build from one S/B/P per axis; axes that split one dimension are taken major to minor in `order`.

        Raises:
            ValueError: a dimension outside the rank, or partial axes with different ops.
        """
        dims: list[tuple[str, ...]] = [()] * rank
        partial: list[str] = []
        op: CombineOp | None = None
        for axis in sbp if order is None else order:
            match sbp.get(axis, B):
                case S(d):
                    if not 0 <= d < rank:
                        raise ValueError(f"{axis}=S({d}): the tensor has rank {rank}")
                    dims[d] += (axis,)
                case P(axis_op):
                    if op not in (None, axis_op):
                        raise ValueError(f"partial axes must share one op, got {op} and {axis_op}")
                    op = axis_op
                    partial.append(axis)
                case _:
                    pass
        return cls(tuple(dims), tuple(partial), op)

    @classmethod
    def parse(cls, text: str, rank: int) -> Placement:
        """Read `str(placement)` back: `"B"`, `"data=S(0) model=P(sum)"`."""
        sbp: dict[str, Sbp] = {}
        for word in text.split():
            if word == "B":
                continue
            axis, _, value = word.partition("=")
            if not value or axis in sbp:
                raise ValueError(f"not a placement: {text!r} (at {word!r})")
            sbp[axis] = parse_sbp(value)
        return cls.of(rank, sbp)

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.dims)

    @property
    def split_axes(self) -> tuple[str, ...]:
        """All axes that split some dimension, dimension by dimension."""
        return tuple(axis for dim in self.dims for axis in dim)

    @property
    def is_broadcast(self) -> bool:
        """Whether every device holds the tensor whole."""
        return not self.partial and not any(self.dims)

    def on(self, axis: str) -> Sbp:
        """S, B or P on one mesh axis."""
        if axis in self.partial:
            assert self.op is not None
            return P(self.op)
        for d, axes in enumerate(self.dims):
            if axis in axes:
                return S(d)
        return B

    def shards(self, mesh: MeshShape) -> tuple[int, ...]:
        """Into how many parts each dimension is cut."""
        counts = []
        for axes in self.dims:
            n = 1
            for axis in axes:
                n *= mesh[axis]
            counts.append(n)
        return tuple(counts)

    def divides(self, shape: Sequence[int], mesh: MeshShape) -> bool:
        """Whether each split dimension is a multiple of its number of parts."""
        return all(size % n == 0 for size, n in zip(shape, self.shards(mesh), strict=True))

    def local_shape(self, shape: Sequence[int], mesh: MeshShape) -> tuple[int, ...]:
        """The shape that one device holds.

        Raises:
            ValueError: a dimension does not divide.
        """
        if not self.divides(shape, mesh):
            raise ValueError(f"{self} does not divide shape {tuple(shape)} on mesh {dict(mesh)}")
        return tuple(size // n for size, n in zip(shape, self.shards(mesh), strict=True))

    def fraction(self, mesh: MeshShape) -> float:
        """The share of the tensor's elements that one device holds."""
        n = 1
        for axis in self.split_axes:
            n *= mesh[axis]
        return 1.0 / n

    def lifted(self) -> Placement:
        """The placement of a stack (a new, whole leading dimension) of tensors placed like this one."""
        return Placement(((), *self.dims), self.partial, self.op)

    def __str__(self) -> str:
        words = [f"{axis}=S({d})" for d, axes in enumerate(self.dims) for axis in axes]
        words += [f"{axis}=P({self.op})" for axis in self.partial]
        return " ".join(words) or "B"


def parse_sbp(text: str) -> Sbp:
    """Read `S(1)`, `B`, `P`, `P(max)`.

    Raises:
        ValueError: the text is none of these.
    """
    if text == "B":
        return B
    if found := re.fullmatch(r"S\(([0-9]+)\)", text):
        return S(int(found[1]))
    if found := re.fullmatch(r"P(?:\((sum|max|min)\))?", text):
        return P(found[1] or "sum")  # type: ignore[arg-type]
    raise ValueError(f"not a placement on one axis: {text!r} (write S(0), B, P, P(max) or P(min))")


def mesh_size(mesh: MeshShape) -> int:
    """The number of devices."""
    n = 1
    for size in mesh.values():
        n *= size
    return n


def single_axis(rank: int, *, ops: Sequence[CombineOp] = ()) -> Iterator[Sbp]:
    """All of S, B, P that a rank-`rank` tensor may have on one axis."""
    yield B
    for d in range(rank):
        yield S(d)
    for op in ops:
        yield P(op)
