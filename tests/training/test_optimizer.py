"""The optimizer does what its recipe says."""

import jax.numpy as jnp
import numpy as np

from sbpjax.training.recipe import Optimizer
from sbpjax.training.step import make_optimizer


def updates(optimizer: Optimizer, gradient: float, steps: int) -> list[float]:
    tx = make_optimizer(optimizer, steps)
    params = {"w": jnp.ones(())}
    state = tx.init(params)
    made = []
    for _ in range(steps):
        change, state = tx.update({"w": jnp.float32(gradient)}, state, params)
        made.append(float(change["w"]))
    return made


def test_the_rate_climbs_and_then_falls():
    made = np.abs(updates(Optimizer(learning_rate=1.0, warmup=0.2, final=0.1, weight_decay=0, clip_norm=None), 1.0, 20))
    assert made[0] == 0 and made.argmax() == 4
    assert np.isclose(made.max(), 1.0, rtol=1e-3)
    assert made[-1] < 0.15


def test_clipping_bounds_what_a_gradient_can_do():
    options = {"learning_rate": 1.0, "warmup": 0.0, "eps": 1.0, "weight_decay": 0}
    free = updates(Optimizer(**options, clip_norm=None), 100.0, 2)[0]
    clipped = updates(Optimizer(**options, clip_norm=1.0), 100.0, 2)[0]
    assert np.isclose(free, -100 / 101, rtol=1e-3) and np.isclose(clipped, -0.5, rtol=1e-3)
