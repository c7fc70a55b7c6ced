"""No rule offers less than the table says, dimension by dimension; nor more, so that the table stays true."""

import jax
import pytest
from rule_tables import TABLE

import sbpjax.pinning
import sbpjax.rules  # noqa: F401
from sbpjax.rules.registry import registered, rule_of


def test_every_registered_primitive_has_a_row():
    assert set(registered()) - {row.primitive for row in TABLE} == set()


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_rule_offers_what_the_table_says(row):
    rule = rule_applied(row)
    sides = [", ".join("".join(kind(rule, d) for d in dims) for dims in side) for side in (rule.operands, rule.results)]
    passes = ", ".join(
        "+".join(map(str, p.operands)) + ("" if p.ops == ("sum",) else ":" + " ".join(p.ops)) for p in rule.passes
    )
    assert (" -> ".join(sides).strip(), passes) == (row.dims.strip(), row.passes)


def rule_applied(row):
    (equation,) = [e for e in equations(jax.make_jaxpr(row.fn)(*row.args).jaxpr) if e.primitive.name == row.primitive]
    return rule_of(equation, [v.aval for v in equation.invars], [v.aval for v in equation.outvars])


def equations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        inner = equation.params.get("jaxpr") if equation.primitive.name == "jit" else None
        if inner is not None:
            yield from equations(inner.jaxpr)


def kind(rule, factors):
    """What an axis may do with a dimension: that of its outermost factor."""
    outermost = next((f for f in factors if rule.sizes[f] > 1), None)
    if outermost is None or outermost in rule.whole:
        return "w"
    if all(any(outermost in d for d in dims) for dims in rule.results):
        return "p"
    return {"sum": "r", "max": "x", "min": "n"}[rule.reductions.get(outermost, "sum")]
