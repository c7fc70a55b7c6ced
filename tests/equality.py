"""Running an example by a plan beside the same example on one device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations, product

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from models import EXAMPLES, MLP, Example

import sbpjax

STRATEGIES = ("auto", "dp", "zero1", "fsdp", "hsdp", "megatron", "fsdp_megatron", "sequence")
EMITTERS = ("shard_map", "jit")
SHAPES = ((8,), (2, 4), (2, 2, 2))

Case = tuple[str, str, str, tuple[int, ...]]
"""An example's name, a strategy, an emitter, the sizes of the mesh."""

ALL: dict[str, Example] = {**EXAMPLES, "mlp": MLP}


def mesh_of(strategy: str, sizes: tuple[int, ...]) -> dict[str, int]:
    """A mesh of these sizes with the axes that the strategy speaks of."""
    if strategy == "hsdp":
        axes = ("replica", "data", "model")
        sizes = (1, *sizes) if len(sizes) == 1 else sizes
    elif strategy in ("megatron", "fsdp_megatron", "sequence"):
        axes = ("model",) if len(sizes) == 1 else ("data", "model", "sequence")
    else:
        axes = ("data", "model", "expert")
    return dict(zip(axes, sizes, strict=False))


def matrix() -> list[Case]:
    """Every example with every strategy, emitter and mesh."""
    return list(product(EXAMPLES, STRATEGIES, EMITTERS, SHAPES))


def pairwise_cover(cases: list[Case]) -> list[Case]:
    """Cases in which every two values that occur together in some case do so, few of them: always the case that adds
    most pairs, the first of equals.
    """

    def pairs(case: Case) -> set:
        return set(combinations(enumerate(case), 2))

    missing = set().union(*map(pairs, cases))
    chosen = []
    while missing:
        best = max(cases, key=lambda case: len(pairs(case) & missing))
        chosen.append(best)
        missing -= pairs(best)
    return chosen


@cache
def begun(name: str, dtype: str):
    """The step and the state of an example, made once."""
    return ALL[name].begin(np.dtype(dtype))


def begin(name: str, dtype: str):
    """The step of an example, and a copy of its first state."""
    step, state = begun(name, dtype)
    return step, jax.tree.map(jnp.copy, state)


def is_nnx(state) -> bool:
    """Whether the state is changed in place."""
    return any(isinstance(part, nnx.Module) for part in state)


@dataclass(frozen=True)
class Record:
    """What a run of some steps gave: its last state, the loss of every step, the state's trees after the first few."""

    state: tuple
    losses: list[float]
    trees: list[dict]

    def gradients(self, i: int):
        """Those of step `i`, read off Adam's first moment: `m = 0.9 m' + 0.1 g`."""
        after = self.trees[i]["first_moment"]
        if i == 0:
            return jax.tree.map(lambda m: m / 0.1, after)
        return jax.tree.map(lambda m, before: (m - 0.9 * before) / 0.1, after, self.trees[i - 1]["first_moment"])


def run(name: str, dtype: str, step, state, steps: int, kept: int) -> Record:
    """Some steps of what stands for the example's step; the trees of the first `kept` states are kept."""
    losses, trees = [], []
    for i in range(steps):
        state, loss = ALL[name].advance(step, state, ALL[name].batch(np.dtype(dtype), i))
        losses.append(float(loss))
        if i < kept:
            trees.append(jax.tree.map(np.array, ALL[name].trees(state)))
    return Record(state, losses, trees)


@cache
def on_one_device(name: str, dtype: str, steps: int, kept: int) -> Record:
    """The same by plain jit."""
    step, state = begin(name, dtype)
    return run(name, dtype, (nnx.jit if is_nnx(state) else jax.jit)(step), state, steps, kept)


def parallel(name: str, dtype: str, strategy: str, emitter: str, sizes: tuple[int, ...]):
    """The example's step for all devices, which is given its state at each call; and the first state."""
    step, state = begin(name, dtype)
    donated = tuple(range(len(state)))
    mesh = mesh_of(strategy, sizes)
    return sbpjax.parallelize(step, strategy=strategy, emitter=emitter, mesh=mesh, donate_argnums=donated), state


def check_five_steps(name: str, strategy: str, emitter: str, sizes: tuple[int, ...]) -> None:
    """In float64, five steps of Adam: every leaf of gradients and state within 1e-9 of its tree's largest entry."""
    with jax.enable_x64(True):
        step, state = parallel(name, "float64", strategy, emitter, sizes)
        got, wanted = run(name, "float64", step, state, 5, 5), on_one_device(name, "float64", 5, 5)
    np.testing.assert_allclose(got.losses, wanted.losses, rtol=1e-12)
    for i in range(5):
        assert_near(got.gradients(i), wanted.gradients(i), 1e-9, f"gradients of step {i}")
        for tree in wanted.trees[i]:
            assert_near(got.trees[i][tree], wanted.trees[i][tree], 1e-9, f"{tree} after step {i}")


def check_hundred_steps(name: str, strategy: str, emitter: str, sizes: tuple[int, ...]) -> None:
    """In float32, a hundred steps: the loss within 1e-5, the first gradients within 1e-5 of the largest entry."""
    step, state = parallel(name, "float32", strategy, emitter, sizes)
    got, wanted = run(name, "float32", step, state, 100, 1), on_one_device(name, "float32", 100, 1)
    np.testing.assert_allclose(got.losses, wanted.losses, rtol=0, atol=1e-5)
    assert_near(got.gradients(0), wanted.gradients(0), 1e-5, "gradients of step 0")
    assert wanted.losses[-1] < 0.8 * wanted.losses[0]


def assert_near(got, wanted, tolerance: float, what: str) -> None:
    """Every leaf is within `tolerance` of the largest entry of its tree; integers are equal."""
    got, wanted = jax.tree.leaves(got), jax.tree.leaves_with_path(wanted)
    assert len(got) == len(wanted), what
    entries = [np.abs(x).max(initial=0) for _, x in wanted if np.issubdtype(x.dtype, np.floating)]
    allowed = tolerance * float(max(entries, default=0))
    for a, (path, b) in zip(got, wanted, strict=True):
        where = f"{what}{jax.tree_util.keystr(path)}"
        assert (a.shape, a.dtype) == (b.shape, b.dtype), where
        if np.issubdtype(b.dtype, np.floating):
            np.testing.assert_allclose(a, b, rtol=0, atol=allowed, err_msg=where)
        else:
            np.testing.assert_array_equal(a, b, where)
