"""The collapse guard: what drafting may lose in a reply, and what it does when things begin to go wrong.

Three things are watched, each of which comes before a loss: candidates refused that were expected to be kept (a sum of
surprises, Page's test), decodes that cost other than measured (engine.cost keeps the streaks), and the tokens' time that
drafting is behind plain decoding. The last is a bound: with `behind` the tokens a reply is behind,

    behind <= max(MOST, MOST_SHARE of the tokens written)

as long as costs are what they were measured to be, and CREDIT more where a draft that has proved itself on this pair reads
the prompt. Below that, a smaller stake is what blocks are measured against.
What was won earlier in the reply counts up to WON_MOST, so that a draft that turns bad cannot use up a long run of luck.

`action` is a sentence for people in the round in which the guard did something, else None.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

MOST, MOST_SHARE = 5.2, 0.026
STAKE, SHARE = 4.8, 0.023
CREDIT = 1.0
"""Tokens' time; of 200 tokens 2.6 %, 2.4 % and 0.5 %. Replayed on 147 replies under eleven machines' costs (scripts/compare_policies.py)."""
STAKED = 0.3
"""A block may risk this share of what is left, whatever its chances,"""
KELLY, OVERDRAFT, DOUBT = 0.7, 3.0, 0.5
"""or be one that Kelly's rule would take with this share of what is left and so many tokens more, after its chances were
cut by DOUBT candidates refused beside the evidence; but never beyond MOST."""
WON_MOST = 16.0
SURPRISE, ALARM = 0.1, 2.5
"""Page's test: the surprise that is taken as chance, beside a candidate's variance, and the sum that is not. 3 sure
candidates refused in a row raise it; where acceptance is as expected, about one candidate in 1,000 does."""


@dataclass(slots=True)
class Guard:
    """One reply's account."""

    action: str | None = None
    ahead: float = 0.0
    """Tokens' time that drafting has won (below 0: lost) against plain decoding."""
    written: int = 0
    credit: float = 0.0
    """Tokens' time that may be lost beyond the bound in this reply."""
    _surprise: dict[str, float] = field(default_factory=dict)
    _empty: bool = False

    def begin(self) -> None:
        self.action, self.ahead, self.written, self.credit, self._empty = None, 0.0, 0, 0.0, False
        self._surprise = {}

    @property
    def balance(self) -> float:
        """Tokens' time that drafting may still lose."""
        return self.ahead + self.credit + max(STAKE, SHARE * self.written)

    def trust(self, reading: float) -> None:
        """A draft that has proved itself is about to read; reading: what that takes, in tokens' time."""
        self.credit = max(self.credit, min(reading, CREDIT))

    def may(
        self, worst: NDArray[np.float64], survival: NDArray[np.float64], evidence: float, reading: float = 0.0
    ) -> NDArray[np.bool_]:
        """(n,): which lengths may be risked. worst: tokens' time lost if none is kept; survival: the chance that the
        first i + 1 are all kept; evidence: how many candidates that chance was seen to hold for; reading: tokens' time
        that the drafter needs first, whatever it then proposes."""
        balance = self.balance - reading
        allowed = worst <= STAKED * balance
        if balance > 0 and not allowed.all():
            purse = KELLY * (balance + OVERDRAFT)
            allowed |= (worst < purse) & (_growth(worst, survival * (1 - DOUBT / (4 + evidence)), purse) > 0)
        most_behind = self.ahead + self.credit + max(MOST, MOST_SHARE * self.written) - reading
        return np.asarray(allowed & (worst <= most_behind), dtype=np.bool_)

    def settle(self, emitted: int, won: float | None) -> None:
        """A round is over; `won` is None where nothing was drafted."""
        self.written += emitted
        if won is not None:
            self.ahead = min(self.ahead + won, WON_MOST)
            if self.balance <= 0.5 and not self._empty:
                self.act(f"drafting has cost {-self.ahead:.0f} tokens' time in this reply: parked until the reply has grown")
        self._empty = self.balance <= 0.5

    def surprised(self, drafter: str, expected: float, kept: float) -> bool:
        """One candidate was judged; True where the refusals are too many for chance. What was won before is then no
        longer there to lose."""
        total = max(0.0, self._surprise.get(drafter, 0.0) + expected - kept - SURPRISE - expected * (1 - expected))
        alarm = total > ALARM
        self._surprise[drafter] = 0.0 if alarm else total
        if alarm:
            self.ahead = min(self.ahead, 0.0)
        return alarm

    def act(self, sentence: str) -> None:
        self.action = sentence


def _growth(worst: NDArray[np.float64], survival: NDArray[np.float64], purse: float) -> NDArray[np.float64]:
    """(n,): by how much the logarithm of `purse` should grow if it pays for a block of i + 1 and gets a token for each one
    kept. Kelly's rule takes what makes it grow (J. L. Kelly, A New Interpretation of Information Rate, 1956)."""
    n = len(worst)
    kept, length = np.arange(n + 1)[None, :], np.arange(1, n + 1)[:, None]
    reached = np.append(np.insert(survival, 0, 1.0), 0.0)
    chance = np.where(kept < length, reached[:-1] - reached[1:], np.where(kept == length, reached[:-1], 0.0))
    return np.asarray((chance * np.log(np.maximum(1 + (kept - worst[:, None]) / purse, 1e-9))).sum(axis=1), dtype=np.float64)
