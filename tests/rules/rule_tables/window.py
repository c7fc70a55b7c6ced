"""Windows, running reductions, order: where one device would need another's elements, the dimension stays whole."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import lax

from rule_tables import row

IMAGES = (2, 8, 6, 4)


def max_pool(x):
    return nn.max_pool(x, (2, 3), (2, 1))


row("reduce_window_max", max_pool, [IMAGES], "ppwp -> ppwp", passes="0:max")
row("reduce_window_max", lambda x: nn.max_pool(x, (3, 2), (2, 2), padding="SAME"), [IMAGES], "pwpp -> pwpp",
    passes="0:max")  # fmt: skip
row("reduce_window_min", lambda x: lax.reduce_window(x, np.inf, lax.min, (1, 2), (1, 2), "VALID"), [(4, 8)], "pp -> pp",
    passes="0:min")  # fmt: skip
row("reduce_window_sum", lambda x: nn.avg_pool(x, (2, 3), (2, 1)), [IMAGES], "ppwp -> ppwp", passes="0")
row("reduce_window", lambda x: lax.reduce_window(x, 1.0, lax.mul, (1, 2), (1, 1), "SAME"), [(4, 8)], "pw,  -> pw")
row("select_and_scatter_add", jax.grad(lambda x: (max_pool(x) ** 2).sum()), [IMAGES], "ppwp, ppwp -> ppwp", passes="0")
row("select_and_gather_add", lambda x, t: jax.jvp(max_pool, (x,), (t,))[1], [IMAGES, IMAGES], "ppwp, ppwp -> ppwp",
    passes="0")  # fmt: skip

row("cumsum", lambda x: lax.cumsum(x, axis=1), [(4, 8)], "pw -> pw", passes="0")
row("cumprod", lambda x: lax.cumprod(x, axis=0), [(4, 8)], "wp -> wp")
row("cummax", lambda x: lax.cummax(x, axis=1), [(4, 8)], "pw -> pw", passes="0:max")
row("cummin", lambda x: lax.cummin(x, axis=1), [(4, 8)], "pw -> pw", passes="0:min")
row("cumlogsumexp", lambda x: lax.cumlogsumexp(x, axis=1), [(4, 8)], "pw -> pw")

row("sort", lambda x, y: lax.sort((x, y), dimension=0), [(4, 8), (4, 8)], "wp, wp -> wp, wp")
row("top_k", lambda x: lax.top_k(x, 2), [(4, 8)], "pw -> pw, pw")
row("approx_top_k", lambda x: lax.approx_max_k(x, 2, reduction_dimension=0), [(4, 8)], "wp -> wp, wp")
row("sort", lambda x: jnp.argsort(x, axis=-1), [(4, 8)], "pw, pw -> pw, pw")
