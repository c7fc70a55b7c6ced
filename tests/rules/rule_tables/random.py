"""Keys and bits."""

import jax
import jax.numpy as jnp
from jax.extend.random import threefry2x32_p

from rule_tables import row

KEYS = [((4,), "key")]
WORDS = ((4, 8), jnp.uint32)


row("random_bits", lambda k: jax.random.bits(k[0], (4, 6)), KEYS, " -> pp")
row("random_bits", jax.vmap(lambda k: jax.random.bits(k, (6,))), KEYS, "p -> pp")
row("random_bits", lambda w: jax.vmap(lambda k: jax.random.bits(k, (6,)))(jax.random.wrap_key_data(w, impl="rbg")),
    [((8, 4), jnp.uint32)], "w -> pp")  # fmt: skip
row("random_split", jax.vmap(lambda k: jax.random.split(k, 2)), KEYS, "p -> pw")
row("random_fold_in", jax.vmap(jax.random.fold_in), [*KEYS, ((4,), jnp.int32)], "p, p -> p")
row("random_fold_in", jax.vmap(jax.random.fold_in, (0, None)), [*KEYS, ((), jnp.int32)], "p,  -> p")
row("random_clone", jax.random.clone, KEYS, "p -> p")
row("random_unwrap", jax.random.key_data, KEYS, "p -> pw")
row("random_wrap", jax.random.wrap_key_data, [((4, 2), jnp.uint32)], "pw -> p")
row("random_seed", jax.vmap(jax.random.key), [((4,), jnp.int32)], "p -> p")
row("threefry2x32", threefry2x32_p.bind, [((), jnp.uint32), ((), jnp.uint32), WORDS, WORDS], ", , pp, pp -> pp, pp")
