"""Batches of matrices. Each one is decomposed by itself, so that even signs and orders come out equal."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rule_corpus import Draw, example


def _matrices(d: Draw, m: int, n: int) -> jax.Array:
    return d.floats(d.choice(4, 8), m, n)


def _definite(d: Draw) -> jax.Array:
    a = _matrices(d, 3, 3)
    return a @ a.swapaxes(1, 2) + 3 * jnp.eye(3)


SYMMETRIC = {
    "cholesky": lax.linalg.cholesky, "eigh": lax.linalg.eigh, "eig": lax.linalg.eig, "schur": lax.linalg.schur,
    "hessenberg": lax.linalg.hessenberg, "tridiagonal": lax.linalg.tridiagonal,
}  # fmt: skip
for _name, _fn in SYMMETRIC.items():

    @example(_name)
    def of_definite(d: Draw, fn=_fn):
        return fn, _definite(d)


@example("lu", "lu_pivots_to_permutation", "qr", "svd")
def decompositions(d: Draw):
    def fn(a):
        factors = lax.linalg.lu(a)
        return factors, lax.linalg.lu_pivots_to_permutation(factors[1], 3), lax.linalg.qr(a), lax.linalg.svd(a)

    return fn, _matrices(d, 3, 2)


@example("geqrf", "householder_product")
def reflections(d: Draw):
    def fn(a):
        packed, taus = jnp.linalg.qr(a, mode="raw")
        return lax.linalg.householder_product(packed.swapaxes(1, 2), taus)

    return fn, _matrices(d, 3, 2)


@example("triangular_solve")
def solves(d: Draw):
    def fn(a, b):
        left = lax.linalg.triangular_solve(a, b, left_side=True, lower=True)
        return left, lax.linalg.triangular_solve(a, b.swapaxes(1, 2), lower=True, transpose_a=True)

    a = _definite(d)
    return fn, a, d.floats(a.shape[0], 3, d.choice(2, 4))


@example("tridiagonal_solve")
def tridiagonal_solves(d: Draw):
    n = d.choice(4, 8)
    below, above = (jnp.ones((n, 3)).at[:, k].set(0) for k in (0, -1))
    return lax.linalg.tridiagonal_solve, below, jnp.full((n, 3), 5.0), above, d.floats(n, 3, 2)


for _fn in (jnp.fft.fft, jnp.fft.rfft, jnp.fft.irfft, jnp.fft.fft2, jnp.fft.irfft2):

    @example("fft")
    def transforms(d: Draw, fn=_fn):
        return fn, d.floats(*d.sizes(2), 4).astype(np.float32)
