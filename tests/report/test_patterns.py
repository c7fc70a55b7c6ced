"""Many paths become few patterns, and no pattern hides a difference."""

import random

import pytest

from sbpjax.report.patterns import merge, ranges, star


def names(paths, separator="."):
    return [name for name, _ in merge(paths, separator)]


def test_numbered_layers_become_a_range():
    assert names((f"p.layers_{i}.kernel", 0) for i in range(32)) == ["p.layers_{0..31}.kernel"]


def test_names_become_a_list_and_layers_stay_a_range():
    paths = [(f"{m}.layers_{i}.{w}", 0) for m in ("mu", "nu") for i in range(3) for w in ("up", "down")]
    assert names(paths) == ["{mu,nu}.layers_{0..2}.{up,down}"]


def test_what_differs_in_kind_is_kept_apart():
    paths = [(f"layers_{i}.w", "whole" if i == 3 else "split") for i in range(6)]
    assert names(paths) == ["layers_{0..2,4,5}.w", "layers_3.w"]


def test_paths_of_other_depth_are_kept_apart():
    assert names([("a.b", 0), ("a.b.c", 0)]) == ["a.b", "a.b.c"]


@pytest.mark.parametrize("seed", range(20))
def test_a_pattern_stands_for_exactly_its_paths(seed):
    rng = random.Random(seed)
    every = [f"{a}.layers_{i}.{w}" for a in ("x", "y") for i in range(4) for w in ("up", "down", "out")]
    paths = [(path, rng.randrange(2)) for path in rng.sample(every, 15)]
    found = merge(paths)
    assert sorted(i for _, members in found for i in members) == list(range(15))
    for name, members in found:
        assert len({paths[i][1] for i in members}) == 1
        assert {paths[i][0] for i in members} == set(expand(name))


def expand(name: str) -> list[str]:
    """All paths that a pattern writes out."""
    head, brace, rest = name.partition("{")
    if not brace:
        return [name]
    inside, _, tail = rest.partition("}")
    values = []
    for part in inside.split(","):
        first, dots, last = part.partition("..")
        values += [str(n) for n in range(int(first), int(last) + 1)] if dots else [part]
    return [head + value + end for value in values for end in expand(tail)]


def test_ranges_are_short():
    assert ranges([5, 0, 1, 2, 7, 8]) == "0..2,5,7,8"


def test_stars_stand_for_layer_numbers_only():
    assert star("layers_12/mlp/up2") == "layers_*/mlp/up*"
    assert star("2d/conv") == "2d/conv"
