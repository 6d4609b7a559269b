"""When to stop drafting: the best rule for a draft whose next confidence is not known yet, by backward induction.

After k candidates that are all kept with chance A, drafting one more costs the draft's step and, as it will be checked,
one row more in the target's decode. Its confidence then shows what it is worth. The value of being allowed to go on is

    V_k(A) = max(0, E[A c - rate (v(k + 2) - v(k + 1)) + V_{k+1}(A c)] - rate d),   V_n = 0,

the mean over the chances c that a next candidate may turn out to have. V_0(1) is what asking the draft is worth at all.
A greedy draft may leave out candidates once it has seen them; then the bracket is never below 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GRID: NDArray[np.float64] = np.linspace(0.0, 1.0, 25)
"""The A at which V is kept; between them a straight line."""

Table = NDArray[np.float64]


def stopping_values(
    chances: NDArray[np.float64], weights: NDArray[np.float64], extra_rows: NDArray[np.float64], step: float, trims: bool
) -> Table:
    """(n + 1, len(GRID)): V_k at the grid, in tokens. chances, weights: what the next candidate's chance may be and how
    often it is that; extra_rows: (n,) tokens' time that checking candidate k + 1 adds; step: tokens' time of a draft step."""
    after = GRID[:, None] * chances[None, :]
    low = np.clip(np.searchsorted(GRID, after, side="right") - 1, 0, len(GRID) - 2)
    part = (after - GRID[low]) / (GRID[low + 1] - GRID[low])
    values = np.zeros((len(extra_rows) + 1, len(GRID)))
    if not trims:  # then the mean over the chances is linear in what comes later: one small matrix
        later = np.zeros((len(GRID), len(GRID)))
        rows = np.arange(len(GRID))[:, None]
        np.add.at(later, (rows, low), (1 - part) * weights)
        np.add.at(later, (rows, low + 1), part * weights)
        kept = after @ weights - step
        for k in range(len(extra_rows) - 1, -1, -1):
            values[k] = np.maximum(0.0, kept - extra_rows[k] + later @ values[k + 1])
        return values
    for k in range(len(extra_rows) - 1, -1, -1):
        worth = after - extra_rows[k] + values[k + 1][low] * (1 - part) + values[k + 1][low + 1] * part
        values[k] = np.maximum(0.0, np.maximum(worth, 0.0) @ weights - step)
    return values


def value(table: Table, drafted: int, survival: float) -> float:
    """V_drafted(survival)."""
    return float(np.interp(survival, GRID, table[drafted]))
