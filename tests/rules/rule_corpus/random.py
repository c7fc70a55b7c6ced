"""Keys and bits, for each generator; equal to the last bit."""

import jax
import numpy as np
from jax.extend.random import threefry2x32_p

from rule_corpus import Draw, example


@example("random_bits")
def threefry_bits(d: Draw):
    m, n, width = *d.sizes(2), d.choice(8, 16, 32)
    return lambda key: jax.random.bits(key, (m, n), np.dtype(f"uint{width}")), jax.random.key(d.size())


@example("random_bits")
def threefry_bits_of_a_batch(d: Draw):
    n = d.size()
    return jax.vmap(lambda key: jax.random.bits(key, (n,))), jax.random.split(jax.random.key(3), 4)


for _generator in ("rbg", "unsafe_rbg"):

    @example("random_bits")
    def stateful_bits_of_a_batch(d: Draw, generator=_generator):
        """These mix the keys of a batch."""
        n = d.size()
        return jax.vmap(lambda key: jax.random.bits(key, (n,))), jax.random.split(jax.random.key(3, impl=generator), 4)


for _generator in ("threefry2x32", "rbg", "unsafe_rbg"):

    @example("random_split", "random_fold_in")
    def derived_keys(d: Draw, generator=_generator):
        n = d.size()

        def fn(keys, numbers):
            split = jax.vmap(lambda key: jax.random.split(key, (2, 2)))(keys)
            grid = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))(keys, numbers[:2])
            one_for_all = jax.vmap(lambda key: jax.random.fold_in(key, 5))(keys)
            return split, grid, jax.vmap(jax.random.fold_in)(keys, numbers), one_for_all

        return fn, jax.random.split(jax.random.key(3, impl=generator), n), d.ints(n, low=0, high=1000)

    @example("random_clone", "random_unwrap", "random_wrap", "random_seed")
    def raw_keys(d: Draw, generator=_generator):
        def fn(seeds):
            keys = jax.vmap(lambda seed: jax.random.key(seed, impl=generator))(seeds)
            return jax.random.wrap_key_data(jax.random.key_data(jax.random.clone(keys)), impl=generator)

        return fn, d.ints(d.size(), low=0, high=1000)


@example("threefry2x32")
def hashed(d: Draw):
    m, n = d.sizes(2)
    words = [d.ints(m, n, low=0, high=2**20, dtype=np.uint32) for _ in range(2)]
    return threefry2x32_p.bind, np.uint32(3), np.uint32(5), *words
