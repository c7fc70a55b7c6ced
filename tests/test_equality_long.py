"""Emission equals one device: the whole matrix, and a hundred steps of a pairwise cover of it."""

from __future__ import annotations

import pytest
from equality import check_five_steps, check_hundred_steps, matrix, pairwise_cover

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "strategy", "emitter", "sizes"), matrix())
def test_five_steps_in_float64_equal_one_device(name, strategy, emitter, sizes):
    check_five_steps(name, strategy, emitter, sizes)


@pytest.mark.parametrize(("name", "strategy", "emitter", "sizes"), pairwise_cover(matrix()))
def test_hundred_steps_in_float32_equal_one_device(name, strategy, emitter, sizes):
    check_hundred_steps(name, strategy, emitter, sizes)
