"""Example applications of primitives, on which the rules are tried: a family of primitives a module.

An example is a function of a `Draw` that returns `(fn, *args)`; each equation of the named primitives in `fn`'s jaxpr
is an application. A new family adds a module here; a registered primitive without an example fails the tests.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.extend.core
import numpy as np
from hypothesis import strategies as st

EXAMPLES: dict[str, list[Callable[[Draw], tuple]]] = {}


class Draw:
    """Random shapes by hypothesis, random values by numpy."""

    def __init__(self, data: Any) -> None:
        self.draw = data.draw
        self.rng = np.random.default_rng(self.draw(st.integers(0, 2**16), label="seed"))

    def sizes(self, n: int) -> tuple[int, ...]:
        """Dimensions, mostly ones that two axes of 2 divide. Each new shape of an op costs a compilation."""
        return tuple(self.draw(st.sampled_from([8, 4, 4, 8, 6]), label="size") for _ in range(n))

    def size(self) -> int:
        return self.sizes(1)[0]

    def choice(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def floats(self, *shape: int, low: float = -2, high: float = 2, dtype: Any = np.float32) -> jax.Array:
        return jax.numpy.asarray(self.rng.uniform(low, high, shape).astype(np.float32), dtype)

    def ints(self, *shape: int, low: int = -9, high: int = 10, dtype: Any = np.int32) -> jax.Array:
        """Integers in `[low, high)`."""
        return jax.numpy.asarray(self.rng.integers(low, high, shape), dtype)

    def bools(self, *shape: int, true: float = 0.5) -> jax.Array:
        return jax.numpy.asarray(self.rng.random(shape) < true)

    def complexes(self, *shape: int) -> jax.Array:
        return jax.lax.complex(self.floats(*shape), self.floats(*shape))


def example(*primitives: str) -> Callable[[Callable[[Draw], tuple]], Callable[[Draw], tuple]]:
    """Register an example of these primitives, each of which occurs in it."""

    def register(make: Callable[[Draw], tuple]) -> Callable[[Draw], tuple]:
        for primitive in primitives:
            EXAMPLES.setdefault(primitive, []).append(make)
        return make

    return register


def applications(primitive: str, fn: Callable, *args: Any) -> Iterator[tuple[Any, list[Any]]]:
    """The equations of one primitive in a function's jaxpr, each with the values of its operands."""
    jaxpr = jax.make_jaxpr(fn)(*args)
    yield from _equations(primitive, jaxpr.jaxpr, jaxpr.consts, jax.tree.leaves(args))[0]


def _equations(primitive: str, jaxpr: Any, consts: Any, args: Any) -> tuple[list, list]:
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
    found = []

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, jax.extend.core.Literal) else values[atom]

    for equation in jaxpr.eqns:
        operands = [read(atom) for atom in equation.invars]
        inner = equation.params.get("jaxpr" if equation.primitive.name == "jit" else "call_jaxpr")
        if equation.primitive.name == primitive:
            found.append((equation, operands))
        if inner is not None:
            more, results = _equations(primitive, inner.jaxpr, inner.consts, operands)
            found += more
        else:
            results = equation.primitive.bind(*operands, **equation.primitive.get_bind_params(equation.params))
            results = results if equation.primitive.multiple_results else [results]
        values.update(zip(equation.outvars, results, strict=True))
    return found, [read(atom) for atom in jaxpr.outvars]


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
