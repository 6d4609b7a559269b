"""The value of drafting on: against brute force over every course a draft can take."""

from __future__ import annotations

import numpy as np
import pytest

from engine.stopping import stopping_values, value

CHANCES, WEIGHTS = np.array([0.3, 0.8, 0.99]), np.array([0.2, 0.3, 0.5])


def exact(extra: list[float], step: float, trims: bool, k: int, survival: float) -> float:
    """By the definition, without a grid."""
    if k == len(extra):
        return 0.0
    total = -step
    for c, w in zip(CHANCES, WEIGHTS, strict=True):
        worth = survival * c - extra[k] + exact(extra, step, trims, k + 1, survival * c)
        total += w * (max(worth, 0.0) if trims else worth)
    return max(0.0, float(total))


@pytest.mark.parametrize("trims", [False, True])
@pytest.mark.parametrize(("extra", "step"), [([0.1] * 5, 0.1), ([0.5, 0.1, 0.9, 0.05, 0.3], 0.2), ([1.5, -0.4, -0.4, 0.1, 0.1], 0.05)])
def test_the_table_is_the_value(extra: list[float], step: float, trims: bool) -> None:
    table = stopping_values(CHANCES, WEIGHTS, np.array(extra), step, trims)
    for k in range(len(extra) + 1):
        for survival in (1.0, 0.9, 0.5, 0.1):
            assert value(table, k, survival) == pytest.approx(exact(extra, step, trims, k, survival), abs=0.04)


def test_a_draft_that_may_leave_candidates_out_is_worth_more() -> None:
    extra = np.full(8, 0.6)
    assert value(stopping_values(CHANCES, WEIGHTS, extra, 0.1, True), 0, 1.0) > value(
        stopping_values(CHANCES, WEIGHTS, extra, 0.1, False), 0, 1.0
    )


def test_nothing_is_worth_drafting_where_a_row_costs_a_token() -> None:
    assert value(stopping_values(CHANCES, WEIGHTS, np.full(16, 1.0), 0.1, False), 0, 1.0) == 0.0
