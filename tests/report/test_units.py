"""Figures are written with three digits and read back with their units."""

import pytest

from sbpjax.errors import InvalidOption, SbpjaxError
from sbpjax.report.units import format_bytes, format_flops, format_seconds, format_share, parse_bytes


@pytest.mark.parametrize(
    ("n", "written"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.98 KiB"),
        (1536, "1.50 KiB"),
        (13 * 2**20, "13.0 MiB"),
        (72 * 2**30, "72.0 GiB"),
        (3 * 2**50, "3072 TiB"),
    ],
)
def test_bytes_have_binary_units(n, written):
    assert format_bytes(n) == written


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0, "0"), (3e-8, "30.0 ns"), (9.996e-6, "10.0 us"), (0.0047, "4.70 ms"), (0.9996, "1.00 s"), (123, "123 s")],
)
def test_seconds_take_the_unit_that_suits(seconds, written):
    assert format_seconds(seconds) == written


def test_work_and_shares():
    assert format_flops(12) == "12 FLOP" and format_flops(3.2e9) == "3.20 GFLOP" and format_flops(2e18) == "2000 PFLOP"
    assert format_share(0.0341) == "3.4 %" and format_share(0.85) == "85 %" and format_share(0.0996) == "10 %"


def test_amounts_are_read_back():
    assert parse_bytes("72GiB") == 72 * 2**30
    assert parse_bytes("80 GB") == 80 * 10**9
    assert parse_bytes(1024) == 1024
    assert parse_bytes(format_bytes(13 * 2**20)) == 13 * 2**20


@pytest.mark.parametrize("amount", ["much", "-3GiB", "3 XiB", 0, ""])
def test_what_is_no_amount_is_refused(amount):
    with pytest.raises(InvalidOption, match=r"memory_limit: not an amount of memory.*write 72GiB") as refused:
        parse_bytes(amount)
    assert isinstance(refused.value, SbpjaxError)
