"""Every registered rule keeps its claim: on examples of its primitive, every signature gives the whole op's answer."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from rule_corpus import EXAMPLES, Draw, applications

import sbpjax.rules  # noqa: F401
from sbpjax.rules.check import check_rule
from sbpjax.rules.registry import registered

MESHES = [{"x": 2, "y": 2}, {"x": 4}, {"x": 2}]


def test_every_registered_primitive_has_an_example():
    assert set(registered()) - set(EXAMPLES) == set()


def test_every_example_is_of_a_registered_primitive():
    assert set(EXAMPLES) - set(registered()) == set()


@pytest.mark.parametrize("primitive", sorted(EXAMPLES))
@given(st.data())
@settings(max_examples=2, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
def test_every_signature_gives_the_answer_of_the_whole_op(primitive, data):
    mesh = data.draw(st.sampled_from(MESHES))
    for make in EXAMPLES[primitive]:
        tried = list(applications(primitive, *make(Draw(data))))
        assert tried, f"{make.__name__} does not apply {primitive}"
        for equation, operands in tried:
            check_rule(equation, operands, mesh)
