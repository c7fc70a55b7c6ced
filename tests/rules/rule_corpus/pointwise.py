"""Elementwise ops: ranges on which each is defined, and the few that look at more than one operand's values."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from rule_corpus import Draw, example
from sbpjax.pinning import constrain
from sbpjax.sbp import S

UNARY = {
    "abs": lax.abs, "acos": lax.acos, "acosh": lax.acosh, "asin": lax.asin, "asinh": lax.asinh, "atan": lax.atan,
    "atanh": lax.atanh, "bessel_i0e": lax.bessel_i0e, "bessel_i1e": lax.bessel_i1e, "cbrt": lax.cbrt, "ceil": lax.ceil,
    "cos": lax.cos, "cosh": lax.cosh, "digamma": lax.digamma, "erf": lax.erf, "erf_inv": lax.erf_inv, "erfc": lax.erfc,
    "exp": lax.exp, "exp2": lax.exp2, "expm1": lax.expm1, "floor": lax.floor, "is_finite": lax.is_finite,
    "lgamma": lax.lgamma, "log": lax.log, "log1p": lax.log1p, "logistic": lax.logistic, "neg": lax.neg,
    "round": lax.round, "rsqrt": lax.rsqrt, "sign": lax.sign, "sin": lax.sin, "sinh": lax.sinh, "sqrt": lax.sqrt,
    "square": lax.square, "tan": lax.tan, "tanh": lax.tanh, "stop_gradient": lax.stop_gradient,
    "copy": lax.copy_p.bind,
}  # fmt: skip
DOMAIN = {
    "acosh": (1, 3), "acos": (-1, 1), "asin": (-1, 1), "atanh": (-0.9, 0.9), "digamma": (1, 3), "erf_inv": (-0.9, 0.9),
    "lgamma": (1, 3), "log": (0.1, 3), "log1p": (-0.9, 3), "rsqrt": (0.1, 3), "sqrt": (0, 3), "tan": (-1, 1),
}  # fmt: skip

for _name, _fn in UNARY.items():

    @example(_name)
    def unary(d: Draw, name=_name, fn=_fn):
        low, high = DOMAIN.get(name, (-2, 2))
        return fn, d.floats(d.size(), low=low, high=high)


for _name, _fn in {"not": lax.bitwise_not, "population_count": lax.population_count, "clz": lax.clz}.items():

    @example(_name)
    def unary_integer(d: Draw, fn=_fn):
        return fn, d.ints(d.size())


BINARY = {
    "add": lax.add, "sub": lax.sub, "mul": lax.mul, "div": lax.div, "atan2": lax.atan2, "nextafter": lax.nextafter,
    "eq": lax.eq, "ne": lax.ne, "lt": lax.lt, "le": lax.le, "gt": lax.gt, "ge": lax.ge,
}  # fmt: skip
for _name, _fn in BINARY.items():

    @example(_name)
    def binary(d: Draw, fn=_fn):
        shape = d.size(), d.choice(1, 4)
        return fn, d.floats(*shape), d.floats(*shape)


POSITIVE = {
    "max": lax.max, "min": lax.min, "pow": lax.pow, "igamma": lax.igamma, "igammac": lax.igammac, "zeta": lax.zeta,
    "polygamma": lax.polygamma, "igamma_grad_a": lax.igamma_grad_a,
}  # fmt: skip
for _name, _fn in POSITIVE.items():

    @example(_name)
    def binary_positive(d: Draw, fn=_fn):
        n = d.size()
        return fn, d.floats(n, low=1.5, high=4), d.floats(n, low=1, high=2)


INTEGERS = {
    "add": lax.add, "mul": lax.mul, "div": lax.div, "rem": lax.rem, "xor": lax.bitwise_xor, "mulhi": lax.mulhi,
    "shift_left": lax.shift_left, "shift_right_logical": lax.shift_right_logical,
    "shift_right_arithmetic": lax.shift_right_arithmetic, "or": lax.bitwise_or, "and": lax.bitwise_and,
}  # fmt: skip
for _name, _fn in INTEGERS.items():

    @example(_name)
    def integers(d: Draw, fn=_fn):
        n = d.size()
        return fn, d.ints(n, low=-(2**30), high=2**30), d.ints(n, low=1, high=8)


for _name, _fn in {"or": lax.bitwise_or, "and": lax.bitwise_and, "xor": lax.bitwise_xor}.items():

    @example(_name)
    def truth_values(d: Draw, fn=_fn):
        n = d.size()
        return fn, d.bools(n), d.bools(n)


for _primitive in (lax.eq_to_p, lax.lt_to_p, lax.le_to_p):

    @example(_primitive.name)
    def total_order(d: Draw, primitive=_primitive):
        x = d.floats(d.size())
        return primitive.bind, x, jnp.where(x > 1, jnp.nan, x)


@example("add", "mul", "max")
def repeated_operands(d: Draw):
    """Scalars, and dimensions of size 1, are repeated by the equations themselves."""
    m, n = d.sizes(2)

    def fn(x, row, column, scalar):
        y = lax.mul_p.bind(lax.add_p.bind(x, row), column)
        return lax.max_p.bind(lax.mul_p.bind(lax.add_p.bind(y, scalar), scalar), row)

    return fn, d.floats(m, n), d.floats(1, n), d.floats(m, 1), d.floats()


@example("add_any")
def sum_of_gradients(d: Draw):
    return jax.grad(lambda x: (jnp.sin(x) * x).sum()), d.floats(d.size())


@example("regularized_incomplete_beta")
def incomplete_beta(d: Draw):
    n = d.size()
    return lax.betainc, d.floats(n, low=1), d.floats(n, low=1), d.floats(n, low=0.1, high=0.9)


@example("integer_pow")
def powers(d: Draw):
    return lambda x, k: (x**3, x**4, x**-3, k**3), d.floats(d.size(), low=0.5), d.ints(d.size())


@example("reduce_precision")
def rounded(d: Draw):
    return lambda x: lax.reduce_precision(x, 5, 3), d.floats(d.size())


@example("complex", "real", "imag", "conj", "mul", "div")
def complex_numbers(d: Draw):
    n = d.size()

    def fn(x, y):
        z = lax.complex(x, y)
        return lax.real(z), lax.imag(z), lax.conj(z), z * z, z / x.astype(z.dtype)

    return fn, d.floats(n, low=1), d.floats(n, low=1)


@example("clamp")
def clamped(d: Draw):
    m, n = d.sizes(2)
    return lambda x, low: (lax.clamp(-1.0, x, 1.0), lax.clamp(low, x, low + 1)), d.floats(m, n), d.floats(m, n)


@example("select_n")
def selected(d: Draw):
    n, cases = d.size(), d.choice(2, 3)
    which = d.bools(n) if cases == 2 else d.ints(n, low=0, high=3)
    return lax.select_n, which, *(d.floats(n) for _ in range(cases))


@example("select_n")
def selected_as_one(d: Draw):
    n = d.size()
    return lax.select_n, jnp.asarray(True), d.bools(n), d.bools(n)


@example("select_n")
def selected_keys(d: Draw):
    n = d.size()
    return lax.select_n, d.bools(n), jax.random.split(jax.random.key(0), n), jax.random.split(jax.random.key(1), n)


@example("optimization_barrier")
def barriers(d: Draw):
    return lax.optimization_barrier, d.floats(d.size())


@example("device_put")
def put(d: Draw):
    return jax.device_put, d.floats(d.size())


@example("sbp_constrain")
def pinned(d: Draw):
    return lambda x: constrain(x, data=S(0)), d.floats(d.size())


@example("name")
def named(d: Draw):
    return lambda x: checkpoint_name(x, "residual"), d.floats(d.size())


@example("convert_element_type")
def conversions(d: Draw):
    n = d.size()

    def fn(x, y, k, b):
        return (
            [x.astype(t) for t in (jnp.bfloat16, jnp.float16, jnp.int32, jnp.bool_, jnp.complex64, jnp.float8_e4m3fn)],
            [y.astype(t) for t in (jnp.float32, jnp.int8)],
            [k.astype(t) for t in (jnp.float32, jnp.int8, jnp.uint32, jnp.bool_)],
            [b.astype(t) for t in (jnp.float32, jnp.int8)],
        )

    return fn, d.floats(n), d.floats(n, dtype=jnp.bfloat16), d.ints(n, low=-300, high=300), d.bools(n)


@example("bitcast_convert_type")
def bits(d: Draw):
    n = d.size()

    def fn(x):
        pieces = lax.bitcast_convert_type(x, np.uint8)
        return lax.bitcast_convert_type(x, np.int32), lax.bitcast_convert_type(pieces, np.float32)

    return fn, d.floats(n, 4)
