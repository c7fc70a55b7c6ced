import itertools

import pytest

from sbpjax.sbp import B, P, Placement, S, mesh_size, parse_sbp, single_axis
from sbpjax.steps import placements

MESH = {"a": 2, "b": 4}


def test_placements_are_read_back_from_their_text():
    for rank in range(4):
        for op in ("sum", "max", "min"):
            for p in placements(rank, tuple(MESH), (op,)):
                assert Placement.parse(str(p), rank) == p


def test_a_placement_says_what_it_is_on_each_axis():
    for on_a, on_b in itertools.product(single_axis(2, ops=("sum",)), repeat=2):
        p = Placement.of(2, {"a": on_a, "b": on_b})
        assert (p.on("a"), p.on("b")) == (on_a, on_b)


def test_axes_of_one_dimension_are_major_to_minor_in_the_given_order():
    sbp = {"a": S(0), "b": S(0)}
    assert Placement.of(1, sbp).dims == (("a", "b"),)
    assert Placement.of(1, sbp, order=("b", "a")).dims == (("b", "a"),)


def test_local_shapes_are_cut_by_the_axes():
    p = Placement.parse("a=S(0) b=S(0)", 2)
    assert p.local_shape((16, 3), MESH) == (2, 3)
    assert p.shards(MESH) == (8, 1)
    assert p.fraction(MESH) == 1 / 8
    assert not p.divides((12, 3), MESH)
    with pytest.raises(ValueError, match=r"a=S\(0\) b=S\(0\) does not divide shape \(12, 3\)"):
        p.local_shape((12, 3), MESH)


def test_a_stack_keeps_its_slices_placement():
    assert str(Placement.parse("a=S(0) b=P(max)", 1).lifted()) == "a=S(1) b=P(max)"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Placement((("a",), ("a",))), "used twice"),
        (lambda: Placement((), ("a",)), "must come together"),
        (lambda: Placement.of(1, {"a": S(1)}), "rank 1"),
        (lambda: Placement.of(0, {"a": P("sum"), "b": P("max")}), "share one op"),
        (lambda: Placement.parse("a:S(0)", 1), "not a placement"),
        (lambda: parse_sbp("S0"), "write S"),
        (lambda: parse_sbp("S(٣)"), "write S"),
    ],
)
def test_nonsense_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_equal_placements_are_equal_however_they_were_made():
    assert Placement((("a",),), ("c", "b"), "sum") == Placement((("a",),), ("b", "c"), "sum")
    assert {Placement.broadcast(2): 1}[Placement.parse("B", 2)] == 1
    assert parse_sbp("P") == P("sum")
    assert parse_sbp("B") == B
    assert mesh_size(MESH) == 8
