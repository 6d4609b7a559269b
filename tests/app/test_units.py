"""Bytes in words."""

from __future__ import annotations

import pytest

from app.units import byte_size, gb


@pytest.mark.parametrize(("count", "words"), [
    (0, "0 bytes"), (1, "1 byte"), (812, "812 bytes"), (999, "1.0 kB"), (8_400, "8.4 kB"), (12_345, "12 kB"),
    (999_999, "1.0 MB"), (1_049_000, "1.0 MB"), (9_949_000, "9.9 MB"), (9_960_000, "10 MB"), (530_200_000, "530 MB"),
    (999_600_000, "1.0 GB"), (2_147_483_648, "2.1 GB"), (80_000_000_000, "80.0 GB"),
])  # fmt: skip
def test_a_size_has_two_or_three_digits_and_a_decimal_unit(count: int, words: str) -> None:
    assert byte_size(count) == words


def test_gigabytes_have_the_digits_asked_for() -> None:
    assert (gb(8_642_000_000), gb(8_642_000_000, 2), gb(8_642_000_000, 0)) == ("8.6", "8.64", "9")
