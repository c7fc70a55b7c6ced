"""Linear algebra: batches are parallel, and so are the right-hand sides of a triangular solve."""

import jax.numpy as jnp
from jax import lax

from rule_tables import row

MATRICES = [(4, 3, 3)]

row("cholesky", lax.linalg.cholesky, MATRICES, "pww -> pww")
row("lu", lax.linalg.lu, MATRICES, "pww -> pww, pw, pw")
row("lu_pivots_to_permutation", lambda p: lax.linalg.lu_pivots_to_permutation(p, 4), [((4, 3), jnp.int32)], "pw -> pw")
row("qr", lax.linalg.qr, [(4, 3, 2)], "pww -> pww, pww")
row("geqrf", lambda a: jnp.linalg.qr(a, mode="raw"), [(4, 3, 2)], "pww -> pww, pw")
row("householder_product", lax.linalg.householder_product, [(4, 3, 2), (4, 2)], "pww, pw -> pww")
row("eigh", lax.linalg.eigh, MATRICES, "pww -> pww, pw")
row("eig", lax.linalg.eig, MATRICES, "pww -> pw, pww, pww")
row("schur", lax.linalg.schur, MATRICES, "pww -> pww, pww")
row("hessenberg", lax.linalg.hessenberg, MATRICES, "pww -> pww, pw")
row("tridiagonal", lax.linalg.tridiagonal, MATRICES, "pww -> pww, pw, pw, pw")
row("svd", lambda a: lax.linalg.svd(a, compute_uv=False), MATRICES, "pww -> pw")
row("tridiagonal_solve", lax.linalg.tridiagonal_solve, [(4, 3)] * 3 + [(4, 3, 2)], "pw, pw, pw, pww -> pww")
row("triangular_solve", lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True), [(4, 3, 3), (4, 3, 2)],
    "pww, pwp -> pwp", passes="1")  # fmt: skip
row("triangular_solve", lax.linalg.triangular_solve, [(4, 3, 3), (4, 2, 3)], "pww, ppw -> ppw", passes="1")
row("fft", jnp.fft.rfft2, [(4, 6, 8)], "pww -> pww", passes="0")
row("fft", jnp.fft.fft, [(4, 6, 8)], "ppw -> ppw", passes="0")
