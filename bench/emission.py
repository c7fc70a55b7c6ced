"""What emission costs, as ratios in one run: lowering against the original's, the step against one made by hand.

    python bench/emission.py

Lowering: seconds to emit, trace and lower the planned program, against tracing and lowering the original (a decoder of
8 unrolled layers). Step: the emitted program under the layout of data parallelism on 8 virtual devices, against the
same step written by hand with `jax.jit` and shardings and with `jax.shard_map`; runs alternate, medians are compared.
"""

from __future__ import annotations

import os
import statistics
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as Spec
from llama import Dimensions, abstract_arguments, train_step

import sbpjax

ROUNDS = 30


def lowering() -> None:
    """Seconds of lowering, ours and the original's."""
    arguments = abstract_arguments(Dimensions(layers=8, width=256, ff=1024, heads=8, vocab=1024, length=128), 16)
    step = jax.jit(train_step, donate_argnums=0)
    start = time.perf_counter()
    step.trace(*arguments).lower()
    original = time.perf_counter() - start
    plan = sbpjax.plan(step, *arguments, mesh={"data": 8}, strategy="dp")
    start = time.perf_counter()
    plan.emit(plan.make_mesh()).lower(*arguments)
    ours = time.perf_counter() - start
    print(f"lowering: original {original:.2f} s, emitted {ours:.2f} s, ratio {ours / original:.2f}")


def stepping() -> None:
    """Seconds of a step: emitted, and the same layout by hand."""
    optimizer = optax.adam(1e-3)
    width, hidden, batch = 256, 1024, 512
    rng = np.random.default_rng(0)

    def make_state():
        keys = jax.random.split(jax.random.key(0), 2)
        params = [jax.random.normal(keys[0], (width, hidden)) / 16, jax.random.normal(keys[1], (hidden, width)) / 32]
        return params, optimizer.init(params)

    def loss_of(params, x):
        return jnp.mean((jax.nn.gelu(x @ params[0]) @ params[1] - x) ** 2)

    def update(state, loss, gradients):
        params, opt_state = state
        changes, opt_state = optimizer.update(gradients, opt_state)
        return (optax.apply_updates(params, changes), opt_state), loss

    def step(state, x):
        return update(state, *jax.value_and_grad(loss_of)(state[0], x))

    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    whole, split = NamedSharding(mesh, Spec()), NamedSharding(mesh, Spec("data"))
    by_jit = jax.jit(step, in_shardings=(whole, split), out_shardings=(whole, whole))

    def local(state, x):
        loss, gradients = jax.value_and_grad(loss_of)(state[0], x)
        return update(state, *jax.lax.pmean((loss, gradients), "data"))

    by_shard_map = jax.jit(
        jax.shard_map(local, mesh=mesh, in_specs=(Spec(), Spec("data")), out_specs=Spec(), check_vma=False)
    )
    x = jax.device_put(rng.normal(size=(batch, width)).astype(np.float32), split)
    state = jax.device_put(make_state(), whole)
    plan = sbpjax.plan(step, state, x, mesh={"data": 8}, strategy="dp")
    emitted = plan.emit(plan.make_mesh())
    programs = {"emitted": emitted, "jit by hand": by_jit, "shard_map by hand": by_shard_map}
    state = jax.device_put(state, plan.in_shardings(plan.make_mesh())[0])
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for i in range(ROUNDS + 3):
        for name, program in programs.items():
            start = time.perf_counter()
            jax.block_until_ready(program(state, x))
            if i >= 3:
                seconds[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    fastest = min(v for name, v in medians.items() if name != "emitted")
    print("step:", ", ".join(f"{name} {1e3 * v:.2f} ms" for name, v in medians.items()))
    print(f"step: emitted / faster by hand = {medians['emitted'] / fastest:.3f}")


if __name__ == "__main__":
    lowering()
    stepping()
