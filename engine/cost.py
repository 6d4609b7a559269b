"""Seconds, as measured on this machine: a target decode of n rows, a draft step, a draft's catch-up.

The cost of n rows is neither flat nor a straight line. On two CPU cores a 1.5B Q4_K_M target takes 36 ms for 1 row,
196 for 7, 281 for 8, 342 for 12, 327 for 16 and 853 for 64 (measured); on a GPU 16 rows cost nearly what 1 does. So
every row count keeps its own figure, per bucket of context length, and unmeasured ones are read off their
neighbours. Figures move slowly: one reading on a busy machine decides nothing. The 1-row figure is the machine's
pulse: most of what it moves by moves all figures of its bucket, so that a machine that slows down as a whole does
not make the figures of rarer row counts look good. Readings that are off to the same side one after another are no noise:
from the second on each moves its figure further and takes those of other blocks along, so that a machine that throttles,
or cores that another program has taken, are known after four or five, whatever is decoded in between.
"""

from __future__ import annotations

import bisect
import math
from typing import Any

import numpy as np

CONTEXT_EDGES = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
"""Bucket b holds context lengths below CONTEXT_EDGES[b]; the last bucket is open."""
OWN_RATE, PULSE_OWN, PULSE_COMMON = 0.2, 0.05, 0.15
"""How far one reading moves its own figure; how far a 1-row reading moves its own and all of its bucket (in log space)."""
CLIP = math.log(1.12)
"""A reading counts as at most 12 % off, unless it is one of a streak: one stall, and plain decoding would look slow for as
long as drafting goes on."""

DRIFT = math.log(1.15)
"""A reading within 15 % of what was expected is noise."""
LONGEST_BLOCK = 64
STREAK_MOST = 3
"""How many times further than one reading the last of a streak may move a figure."""


class RowCosts:
    """Seconds of one decode by rows and context. Unknown until the first `set` or `observe`."""

    def __init__(self) -> None:
        self._buckets: list[dict[int, float]] = [{} for _ in range(len(CONTEXT_EDGES) + 1)]
        self._streaks = {"all": 0, "one": 0, "block": 0}
        self.streak = 0
        """Readings in a row that were more than DRIFT above (below: negative) what was expected: of all, or of those of one row
        or of more alone, as one row may well cost what it did while blocks do not."""

    def known(self) -> bool:
        return any(self._buckets)

    def set(self, rows: int, context: int, seconds: float) -> None:
        """Take `seconds` as it is (a calibration)."""
        self._buckets[_bucket(context)][rows] = seconds

    def observe(self, rows: int, context: int, seconds: float) -> None:
        """One more reading."""
        figures = self._buckets[_bucket(context)]
        if not self.known():
            figures[rows] = seconds
            return
        error = math.log(max(seconds, 1e-9) / self.seconds(rows, context))
        rows = _kept_as(rows)
        expected = self.seconds(rows, context)
        side = (error > DRIFT) - (error < -DRIFT)
        one = rows == 1
        kinds = ("all", "one" if one else "block")
        for kind in kinds:
            self._streaks[kind] = side * (1 + max(0, side * self._streaks[kind]))
        self.streak = max((self._streaks[kind] for kind in kinds), key=abs)
        streak = abs(self.streak)
        further = min(max(streak, 1), STREAK_MOST)
        most = CLIP * further * further
        error = max(-most, min(most, error)) * further
        figures[rows] = expected * math.exp(error * (PULSE_OWN if one else OWN_RATE))
        for n in figures:
            if one or (streak > 1 and n not in (1, rows)):
                figures[n] *= math.exp(error * PULSE_COMMON)

    def seconds(self, rows: int, context: int) -> float:
        """Expected seconds; `known` must hold.

        What a bucket has not measured it takes from the fullest bucket's curve, scaled as its own figures are to
        that curve at the row counts nearest by.
        """
        own = self._buckets[_bucket(context)]
        if rows in own:
            return own[rows]
        reference = max(self._buckets, key=len)
        curve = _interpolate(reference, rows)
        if own is reference or not own:
            return curve
        known = sorted(own)
        return curve * float(np.interp(rows, known, [own[n] / _interpolate(reference, n) for n in known]))

    def to_json(self) -> list[dict[str, float]]:
        return [{str(n): round(seconds, 7) for n, seconds in sorted(bucket.items())} for bucket in self._buckets]

    def load_json(self, data: list[dict[str, float]]) -> None:
        """Take over saved figures; entries that are no positive number are left out."""
        for bucket, saved in zip(self._buckets, data, strict=False):
            bucket.update({int(n): float(s) for n, s in saved.items() if float(s) > 0})


def _kept_as(rows: int) -> int:
    """Blocks each by their own number of rows; what is longer, a draft's reading, by the nearest power of two."""
    return rows if rows <= LONGEST_BLOCK else int(2 ** round(math.log2(rows)))


def _bucket(context: int) -> int:
    return bisect.bisect_right(CONTEXT_EDGES, context)


def _interpolate(figures: dict[int, float], rows: int) -> float:
    """Between two measured row counts a straight line; outside them, in proportion to the marginal cost there."""
    points = sorted(figures)
    i = bisect.bisect_left(points, rows)
    if i < len(points) and points[i] == rows:
        return figures[rows]
    if len(points) == 1:
        return figures[points[0]] * (rows / points[0] if rows > points[0] else 1.0)
    if i == len(points):
        return _beyond(figures, points, rows)
    low, high = (points[i - 1], points[i]) if i else (points[0], points[1])
    slope = (figures[high] - figures[low]) / (high - low)
    if i == 0:
        return max(figures[points[0]] - slope * (points[0] - rows), 0.1 * figures[points[0]])
    return figures[low] + slope * (rows - low)


def _beyond(figures: dict[int, float], points: list[int], rows: int) -> float:
    """More rows than were ever measured, as when a draft is to read a long prompt: on at the slope from a row count of at
    most half the last one. Two neighbours, each known to a few percent, would make a slope of noise."""
    last = points[-1]
    earlier = points[max(0, bisect.bisect_right(points, last // 2) - 1)]
    slope = (figures[last] - figures[earlier]) / (last - earlier)
    return figures[last] + max(slope, 0.0) * (rows - last)


class CostModel:
    """All measured costs of one pair on one machine and build."""

    def __init__(self) -> None:
        self.target = RowCosts()
        self.draft = RowCosts()

    def verify(self, rows: int, context: int) -> float:
        """Seconds of a target decode of `rows`."""
        return self.target.seconds(rows, context)

    def draft_step(self, context: int) -> float:
        """Seconds to draft one token once the draft has read everything before it."""
        return self.draft.seconds(1, context)

    def catch_up(self, tokens: int, context: int) -> float:
        """Seconds for the draft to read `tokens` it has not seen."""
        return self.draft.seconds(tokens, context) if tokens > 0 else 0.0

    def copy(self) -> CostModel:
        return CostModel.from_json(self.to_json())

    def to_json(self) -> dict[str, Any]:
        return {"target": self.target.to_json(), "draft": self.draft.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CostModel:
        """Raises KeyError, TypeError, ValueError or AttributeError when the data is not what to_json wrote."""
        model = cls()
        model.target.load_json(data["target"])
        model.draft.load_json(data["draft"])
        return model
