"""Products: contracted dimensions are reductions."""

import jax.numpy as jnp
from jax import lax
from rule_corpus.contract import ragged

from rule_tables import row

BATCHED = (((2,), (1,)), ((0,), (0,)))
row(
    "dot_general",
    lambda x, y: lax.dot_general(x, y, BATCHED),
    [(4, 6, 8), (4, 8, 2)],
    "ppr, prp -> ppp",
    passes="0, 1",
)
row("dot_general", lambda x, y: x @ y, [(4, 8), (8,)], "pr, r -> p", passes="0, 1")
row("dot_general", lambda x, y: x @ y, [((8,), jnp.int32)] * 2, "r, r -> ", passes="0, 1")

GROUPS = ((3,), jnp.int32)
ROWS = ragged(((1,), (1,)), ((), ()), [0], [0])
SUMMANDS = ragged(((0,), (0,)), ((), ()), [0], [])
BATCH = ragged(((2,), (1,)), ((0,), (0,)), [0], [])
EACH = ragged(((2,), (2,)), ((0,), (1,)), [1], [0])
row("ragged_dot_general", ROWS, [(8, 4), (3, 4, 6), GROUPS], "pr, wrp, w -> pp", passes="0, 1")
row("ragged_dot_general", SUMMANDS, [(8, 4), (8, 6), GROUPS], "rp, rp, w -> wpp", passes="0, 1")
row("ragged_dot_general", BATCH, [(6, 2, 4), (6, 4, 8), GROUPS], "wpr, wrp, w -> wpp", passes="0, 1")
row("ragged_dot_general", EACH, [(2, 8, 4), (3, 2, 4, 6), ((2, 3), jnp.int32)], "wwr, wwrp, ww -> wwp", passes="0, 1")
