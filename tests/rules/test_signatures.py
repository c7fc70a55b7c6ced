"""Signatures are all the ways in which axes may share an op, and no others."""

import jax
import jax.numpy as jnp
import pytest

import sbpjax.rules  # noqa: F401
from sbpjax.rules.notation import build
from sbpjax.rules.rule import ANY_OP, Passes
from sbpjax.rules.signatures import replicated, signatures
from sbpjax.sbp import Placement


def offered(notation, operands, results, mesh, **options):
    avals = (
        [jax.ShapeDtypeStruct(s, jnp.float32) for s in operands],
        [jax.ShapeDtypeStruct(s, jnp.float32) for s in results],
    )
    return list(map(str, signatures(build(notation, *avals, **options), mesh, operands, results)))


def test_one_axis_takes_nothing_one_factor_or_one_pass():
    passes = [Passes((0,)), Passes((1,))]
    assert offered("i k, k j -> i j", [(4, 8), (8, 6)], [(4, 6)], {"x": 2}, passes=passes) == [
        "B, B -> B",
        "x=S(0), B -> x=S(0)",
        "x=S(1), x=S(0) -> x=P(sum)",
        "B, x=S(1) -> x=S(1)",
        "x=P(sum), B -> x=P(sum)",
        "B, x=P(sum) -> x=P(sum)",
    ]


def test_an_axis_that_does_not_divide_a_factor_leaves_it():
    assert offered("i j -> i j", [(4, 6)], [(4, 6)], {"x": 4}) == ["B -> B", "x=S(0) -> x=S(0)"]


def test_axes_that_share_a_factor_stand_in_mesh_order_and_divide_it_together():
    found = offered("i -> i", [(4,)], [(4,)], {"x": 2, "y": 2})
    assert found == ["B -> B", "y=S(0) -> y=S(0)", "x=S(0) -> x=S(0)", "x=S(0) y=S(0) -> x=S(0) y=S(0)"]
    assert len(offered("i -> i", [(2,)], [(2,)], {"x": 2, "y": 2})) == 3


def test_an_axis_of_size_one_takes_no_part():
    assert offered("i -> i", [(4,)], [(4,)], {"x": 1, "y": 2}) == ["B -> B", "y=S(0) -> y=S(0)"]


def test_the_minor_factor_of_a_compound_dimension_waits_until_the_major_one_is_used_up():
    assert offered("(a b) -> a b", [(8,)], [(4, 2)], {"x": 2}) == ["B -> B", "x=S(0) -> x=S(0)"]
    found = offered("(a b) -> a b", [(8,)], [(2, 4)], {"x": 2, "y": 2})
    assert "x=S(0) y=S(0) -> x=S(0) y=S(1)" in found
    assert not any("S(1)" in s and "S(0) y=S(0)" not in s for s in found)


def test_a_major_factor_of_size_one_is_used_up():
    assert "x=S(0) -> x=S(1)" in offered("(a b) -> a b", [(4,)], [(1, 4)], {"x": 2})


def test_one_tensor_is_never_partial_with_two_ops():
    found = offered("i k -> i", [(4, 4)], [(4,)], {"x": 2, "y": 2}, passes=[Passes((0,), ("max",))])
    assert "x=S(1) y=S(1) -> x=P(sum) y=P(sum)" in found
    assert not any("P(sum)" in s and "P(max)" in s for s in found)
    found = offered("i -> i", [(4,)], [(4,)], {"x": 2, "y": 2}, passes=[Passes((0,), ANY_OP)])
    assert "x=P(max) y=P(max) -> x=P(max) y=P(max)" in found
    assert not any(len({op for op in ANY_OP if f"P({op})" in s}) > 1 for s in found)


def test_a_whole_factor_and_an_unnamed_dimension_are_never_split():
    assert offered("i j -> i j", [(4, 4)], [(4, 4)], {"x": 2}, whole=["i", "j"]) == ["B -> B"]
    assert offered("_ j -> j", [(4, 4)], [(4,)], {"x": 2}, whole=["j"]) == ["B -> B"]


def test_a_result_that_lacks_a_factor_is_partial_and_one_that_has_it_is_split():
    found = offered("i k -> i, k", [(4, 4)], [(4,), (4,)], {"x": 2}, reductions={"k": "max"})
    assert "x=S(1) -> x=P(max), x=S(0)" in found
    assert "x=S(0) -> x=S(0), x=P(sum)" in found


def test_signatures_are_distinct_and_start_with_all_whole():
    found = offered("i j, i j -> i j", [(4, 4)] * 2, [(4, 4)], {"x": 2, "y": 2}, passes=[Passes((0, 1))])
    assert found[0] == "B, B -> B"
    assert len(found) == len(set(found))


@pytest.mark.parametrize("mesh", [{"x": 2}, {"x": 2, "y": 4}, {"x": 2, "y": 2, "z": 2}])
def test_every_signature_divides_the_shapes(mesh):
    shapes = [(4, 8), (8, 16)], [(4, 16)]
    avals = [[jax.ShapeDtypeStruct(s, jnp.float32) for s in side] for side in shapes]
    rule = build("i k, k j -> i j", *avals, passes=[Passes((0,)), Passes((1,))])
    for s in signatures(rule, mesh, *shapes):
        for placement, shape in zip([*s.operands, *s.results], [*shapes[0], *shapes[1]], strict=True):
            assert placement.divides(shape, mesh)


def test_replicated_is_whole_everywhere():
    x = jax.ShapeDtypeStruct((4, 8), jnp.float32)
    s = replicated([x], [x, x])
    assert s.operands == (Placement.broadcast(2),) and s.results == (Placement.broadcast(2),) * 2
