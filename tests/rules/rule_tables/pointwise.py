"""Elementwise ops: everything parallel; partial values pass where the op is linear or increasing."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from rule_corpus.pointwise import BINARY, INTEGERS, POSITIVE, UNARY

from rule_tables import row
from sbpjax.pinning import constrain
from sbpjax.sbp import S

EXTREMES = "0:max min"
LATTICE = "0:max min, 1:max min"
ANY = "sum max min"

INCREASING = {
    "asinh", "atan", "cbrt", "ceil", "erf", "exp", "exp2", "expm1", "floor", "logistic", "round", "sign", "sinh",
    "tanh",
}  # fmt: skip
IDENTITIES = {"stop_gradient", "copy"}
for _name, _fn in UNARY.items():
    _passes = "0" if _name == "neg" else f"0:{ANY}" if _name in IDENTITIES else EXTREMES if _name in INCREASING else ""
    row(_name, _fn, [(4, 8)], "pp -> pp", passes=_passes)
for _name, _fn in {"not": lax.bitwise_not, "population_count": lax.population_count, "clz": lax.clz}.items():
    row(_name, _fn, [((4, 8), jnp.int32)], "pp -> pp")

FLOATS = {"add": "0+1", "sub": "0+1", "mul": "0, 1", "div": "0"}
for _name, _fn in BINARY.items():
    row(_name, _fn, [(4, 8), (4, 8)], "pp, pp -> pp", passes=FLOATS.get(_name, ""))
POSITIVES = {"max": f"0+1:max, {LATTICE}", "min": f"0+1:min, {LATTICE}"}
for _name, _fn in POSITIVE.items():
    row(_name, _fn, [(4, 8), (4, 8)], "pp, pp -> pp", passes=POSITIVES.get(_name, ""))
WRAPPING = {"add": "0+1", "mul": "0, 1"}
for _name, _fn in INTEGERS.items():
    row(_name, _fn, [((8,), jnp.int32)] * 2, "p, p -> p", passes=WRAPPING.get(_name, ""))

row("and", lax.bitwise_and, [((8,), jnp.bool_)] * 2, "p, p -> p", passes=LATTICE)
row("or", lax.bitwise_or, [((8,), jnp.bool_)] * 2, "p, p -> p", passes=LATTICE)
row("xor", lax.bitwise_xor, [((8,), jnp.bool_)] * 2, "p, p -> p")
row("max", lax.max, [(8,), ()], "p,  -> p", passes=f"0+1:max, {LATTICE}")
row("add", lax.add_p.bind, [(4, 1), (4, 8)], "pw, pp -> pp", passes="0+1")
row("add_any", jax.grad(lambda x: (jnp.sin(x) * x).sum()), [(8,)], "p, p -> p", passes="0+1")

for _primitive in (lax.eq_to_p, lax.lt_to_p, lax.le_to_p):
    row(_primitive.name, _primitive.bind, [(8,), (8,)], "p, p -> p")
row("regularized_incomplete_beta", lax.betainc, [(8,), (8,), (8,)], "p, p, p -> p")
row("integer_pow", lambda x: x**3, [(8,)], "p -> p", passes=EXTREMES)
row("integer_pow", lambda x: x**4, [(8,)], "p -> p")
row("reduce_precision", lambda x: lax.reduce_precision(x, 5, 3), [(8,)], "p -> p", passes=EXTREMES)
row("complex", lax.complex, [(8,), (8,)], "p, p -> p", passes="0+1")
row("real", lax.real, [((8,), jnp.complex64)], "p -> p", passes="0")
row("imag", lax.imag, [((8,), jnp.complex64)], "p -> p", passes="0")
row("conj", lax.conj, [((8,), jnp.complex64)], "p -> p", passes="0")
row("clamp", lax.clamp, [(), (4, 8), ()], ", pp,  -> pp", passes="1:max min")
row("clamp", lax.clamp, [(8,), (8,), (8,)], "p, p, p -> p", passes="1:max min")
row("select_n", lax.select_n, [((8,), jnp.bool_), (8,), (8,)], "p, p, p -> p", passes=f"1+2:{ANY}")
row("select_n", lax.select_n, [((), jnp.bool_), (8,), (8,)], ", p, p -> p", passes=f"1+2:{ANY}")
row("optimization_barrier", lax.optimization_barrier, [(4, 8)], "pp -> pp", passes=f"0:{ANY}")
row("device_put", jax.device_put, [(4, 8)], "pp -> pp", passes=f"0:{ANY}")
row("sbp_constrain", lambda x: constrain(x, data=S(0)), [(4, 8)], "pp -> pp", passes=f"0:{ANY}")
row("name", lambda x: checkpoint_name(x, "residual"), [(4, 8)], "pp -> pp", passes=f"0:{ANY}")

CONVERSIONS = {
    (jnp.bfloat16, jnp.float32): f"0:{ANY}",
    (jnp.float32, jnp.bfloat16): EXTREMES,
    (jnp.float16, jnp.bfloat16): EXTREMES,
    (jnp.float32, jnp.complex64): "0",
    (jnp.float32, jnp.float8_e4m3fn): "",
    (jnp.float32, jnp.int32): "",
    (jnp.int8, jnp.int32): EXTREMES,
    (jnp.int32, jnp.int8): "",
    (jnp.int32, jnp.float32): EXTREMES,
    (jnp.bool_, jnp.float32): EXTREMES,
}
for (_old, _new), _passes in CONVERSIONS.items():
    row("convert_element_type", lambda x, new=_new: x.astype(new), [((8,), _old)], "p -> p", passes=_passes)

row("bitcast_convert_type", lambda x: lax.bitcast_convert_type(x, jnp.int32), [(8, 4)], "pp -> pp")
row("bitcast_convert_type", lambda x: lax.bitcast_convert_type(x, jnp.uint8), [(8,)], "p -> pw")
row("bitcast_convert_type", lambda x: lax.bitcast_convert_type(x, jnp.float32), [((8, 4), jnp.uint8)], "pw -> p")
