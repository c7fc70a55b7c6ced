"""What each rule must offer, dimension by dimension: a table for each family of primitives.

A row names a primitive, a function that applies it once, the shapes of its arguments, and what a mesh axis may do:

    row("dot_general", jnp.matmul, [(4, 8), (8, 6)], "pr, rp -> pp", passes="0, 1")

`p`: parallel (every result carries it); `r`, `x`, `n`: a reduction by sum, max, min; `w`: whole. Operands and results
are separated by commas, scalars are blank. Of a compound dimension the outermost splittable factor counts. `passes`:
positions that are partial together (`0+1`), and by which ops where it is not by sum alone (`0+1:sum max min`).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

TABLE: list[Row] = []


@dataclass(frozen=True)
class Row:
    primitive: str
    fn: Callable
    args: tuple[Any, ...]
    dims: str
    passes: str

    def __str__(self) -> str:
        return f"{self.primitive} {self.dims}"


def row(primitive: str, fn: Callable, args: Sequence[Any], dims: str, *, passes: str = "") -> None:
    """Add a row. An argument is a shape of float32, or `shape, dtype`."""
    TABLE.append(Row(primitive, fn, tuple(map(_argument, args)), dims, passes))


def _argument(given: Any) -> Any:
    shape, dtype = given if given and isinstance(given[0], tuple) else (given, jnp.float32)
    if dtype == "key":
        return jax.eval_shape(lambda: jax.random.split(jax.random.key(0), shape))
    return jax.ShapeDtypeStruct(shape, dtype)


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
