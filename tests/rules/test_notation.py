"""The notation says what it seems to say, and an error names notation, shapes and the argument at fault."""

import doctest

import jax
import jax.numpy as jnp
import pytest

from sbpjax.errors import InvalidRule
from sbpjax.rules import notation as notation_module
from sbpjax.rules import registry
from sbpjax.rules.notation import build, combinable, parse
from sbpjax.rules.rule import ANY_OP, Passes


def aval(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def test_words_are_dimensions_and_parentheses_compound_ones():
    assert parse("(a b) _, -> a b") == (((("a", "b"), ()), ()), ((("a",), ("b",)),))


def test_a_blank_side_is_nothing_or_one_scalar():
    assert build("-> i", [], [aval(4)]).operands == ()
    assert build("-> i", [aval()], [aval(4)]).operands == ((),)


def test_an_ellipsis_stands_for_the_same_dimensions_everywhere():
    rule = build("... k, ... k -> ...", [aval(2, 3, 4), aval(2, 3, 4)], [aval(2, 3)])
    assert list(rule.sizes.values()) == [2, 3, 4]
    assert rule.results[0] == rule.operands[0][:2]


def test_the_missing_size_of_a_compound_dimension_is_inferred():
    rule = build("(b s) d -> b s d", [aval(12, 5)], [aval(3, 4, 5)])
    assert dict(rule.sizes) == {"b": 3, "s": 4, "d": 5}
    assert build("(a b) -> (a b)", [aval(12)], [aval(12)], sizes={"a": 3}).sizes["b"] == 4


@pytest.mark.parametrize(
    ("notation", "operands", "results", "options", "message"),
    [
        ("i j", [(2, 3)], [(2, 3)], {}, "one arrow"),
        ("i + j -> i", [(2, 3)], [(2,)], {}, "cannot read"),
        ("i i -> i", [(2, 2)], [(2,)], {}, "'i' stands twice"),
        ("(i 1) -> i", [(2,)], [(2,)], {}, "'1' is not a factor's name"),
        ("i, j -> i j", [(2,)], [(2, 3)], {}, "names 2 operands, the op has 1"),
        ("i j -> i", [(2, 3, 4)], [(2,)], {}, "operand 0 has 3 dimensions, the notation 2"),
        ("i -> i", [(2,)], [(3,)], {}, "result 0 dimension 0 is 3, but i is 2"),
        ("(a b) -> a", [(10,)], [(4,)], {}, "operand 0 dimension 0 is 10, not a multiple of 4"),
        ("(a b) -> _", [(12,)], [(12,)], {}, "sizes of a b in operand 0 dimension 0 are unknown"),
        ("... -> i ...", [(2, 3)], [(2, 3)], {}, "the ellipsis of result 0 stands for 1 dimensions, elsewhere for 2"),
        ("i -> i", [(2,)], [(2,)], {"whole": ["k"]}, "whole names factor 'k'"),
        ("i -> i", [(2,)], [(2,)], {"reductions": {"k": "max"}}, "reductions names factor 'k'"),
        ("i -> i", [(2,)], [(2,)], {"sizes": {"k": 2}}, "sizes names factor 'k'"),
        ("i -> i", [(2,)], [(2,)], {"passes": [Passes((1,))]}, r"passes names operands \(1,\)"),
    ],
)
def test_an_error_names_what_does_not_fit(notation, operands, results, options, message):
    with pytest.raises(InvalidRule, match=message) as caught:
        build(notation, [aval(*s) for s in operands], [aval(*s) for s in results], **options)
    assert notation in str(caught.value)


def test_an_error_about_shapes_names_all_shapes():
    with pytest.raises(InvalidRule, match=r"operand 0 \(2, 3\), result 0 \(4,\)"):
        build("i j -> i", [aval(2, 3)], [aval(4)])


@pytest.mark.parametrize(
    ("dtype", "ops"),
    [(jnp.float32, ANY_OP), (jnp.int32, ANY_OP), (jnp.complex64, ("sum",)), (jnp.bool_, ("max", "min"))],
)
def test_a_dtype_is_partial_only_by_what_combines_it(dtype, ops):
    assert combinable(aval(4, dtype=dtype)) == ops
    rule = build("i -> i", [aval(4, dtype=dtype)], [aval(4, dtype=dtype)], passes=[Passes((0,), ANY_OP)])
    assert rule.passes == (Passes((0,), ops),)


def test_keys_are_never_partial():
    keys = jax.random.split(jax.random.key(0), 4)
    assert build("i -> i", [keys], [keys], passes=[Passes((0,), ANY_OP)]).passes == ()


def test_a_reduction_that_the_dtype_cannot_combine_stays_whole():
    assert build("i k -> i", [aval(2, 4, dtype=jnp.bool_)], [aval(2, dtype=jnp.bool_)]).whole == {"k"}
    assert build("i k -> i", [aval(2, 4)], [aval(2)]).whole == frozenset()


@pytest.mark.parametrize("module", [notation_module, registry], ids=["notation", "registry"])
def test_examples_in_docstrings_hold(module):
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0 and outcome.failed == 0
