"""How many tokens to draft, and by whom: whatever promises the most tokens per second. Nothing else counts.

A round that drafts n tokens keeps 1 + S(n) of them on average, S(n) = A_1 + ... + A_n with A_i the chance that the
first i are all kept, and costs n d + v(n + 1) seconds (d: one draft step, v: a target decode by rows). With lambda
the tokens per second this reply gets otherwise, drafting n is worth

    gain(n) = S(n) - lambda (n d + v(n + 1) - v(1))        in tokens,

and the best n is the one with the highest gain (Dinkelbach's method: with lambda the rate itself, the maximiser of
the gain is the maximiser of the rate). lambda is the plain rate 1 / v(1), or the rate of the last rounds if higher.
v is jagged, so every n is looked at, not the next one only. n = 0 is always a choice.

The model draft is decided again after each of its tokens, when its confidence is known. Where even a draft that is
always right would not pay, the draft model is never read. Where it might, but is not expected to, it is parked: the
target's own confidence, which costs nothing, tells when the text turns easy enough; and probes on a doubling
schedule, at most 1 % of the time, catch what that misses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engine.acceptance import AcceptanceModel
from engine.cost import CostModel
from engine.length import PLAIN, Outcome, Plan, Situation

MARGIN = 0.05
"""Tokens a draft must promise beyond break-even: half the noise of one decode on a busy 2-core machine."""
STAKE, STAKE_SHARE = 8.0, 0.02
"""A copy may lose at most this many tokens' time, plus this share of the reply so far, plus what copies have won
in this reply: one long block that fails would cost a short reply more than copying can ever give it back. (Replayed
on 48 greedy replies of the starter target, without and with the stake: replies that are no copies ran at 0.976 and
0.986 of plain on average, 0.86 and 0.90 at worst, edits at 1.84 and 1.8, summaries at 1.25 and 1.27.)"""
MODEL_LIMIT = 16
"""Longest block the draft model is asked for."""
PROBE_FIRST, PROBE_LAST, PROBE_SHARE = 4, 512, 0.01
REMEASURE_PLAIN = 64
"""Rounds after which v(1) is measured again if drafting never stops."""
RATE_CEILING = 1.6
"""lambda is at most this many plain rates: the rate of a stretch that was copied says little about what follows."""


@dataclass(slots=True)
class AdaptiveLength:
    """The rule of this module's docstring, for the lookup, the draft model, or both."""

    costs: CostModel
    acceptance: AcceptanceModel
    use_ngram: bool = True
    use_model: bool = True
    learn_costs: bool = True
    """False in seeded replies: no clock may then influence the text."""
    state: str = "starting"
    parked: bool = False
    _now: Situation = field(default_factory=lambda: Situation(0, 0, 0))
    _curve: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    _curve_age: int = 0
    _curve_context: int = 0
    _rate: float = 0.0
    _tokens: float = 0.0
    _seconds: float = 0.0
    _since_plain: int = 0
    _since_probe: int = 0
    _seconds_since_probe: float = 0.0
    _probe_interval: int = PROBE_FIRST
    _probing: bool = False
    _hopeless: bool = False
    _stake: float = STAKE
    _ease: float = 0.0
    _ease_count: int = 0

    def begin(self, prompt_tokens: int) -> None:
        self.acceptance.begin()
        self._tokens = self._seconds = 0.0
        self._since_probe, self._probe_interval, self._seconds_since_probe = 0, PROBE_FIRST, 0.0
        self._ease, self._ease_count = 0.0, 0
        self._stake = STAKE
        self.parked = False

    @property
    def wants_ease(self) -> bool:
        return self.use_model and self._now.draft_lag is not None and not self._hopeless

    # ---- the choice

    def choose(self, now: Situation) -> Plan:
        self._now = now
        self._probing = False
        if now.limit <= 0 or not self.costs.target.known():
            return PLAIN
        self._refresh_curve(now)
        plain = float(self._curve[1])
        self._rate = min(max(1 / plain, self._tokens / self._seconds if self._seconds > 0 else 0.0), RATE_CEILING / plain)
        if self._since_plain >= REMEASURE_PLAIN:
            return Plan("target", 0, "measuring plain decoding again")
        n_copy, copy_gain = self._best_copy(now) if self.use_ngram and now.match_length else (0, 0.0)
        n_model, model_gain = self._best_model(now) if self.use_model and now.draft_lag is not None else (0, 0.0)
        if max(copy_gain, model_gain) <= MARGIN:
            return self._probe(now) or self._stay_plain(now)
        if copy_gain >= model_gain:
            self.state = f"copying up to {n_copy} tokens from earlier text after a match of {now.match_length}"
            return Plan("ngram", n_copy, self.state, float(self._curve[n_copy + 1]))
        self.parked = False
        self._probe_interval = PROBE_FIRST
        self.state = (
            f"drafting up to {n_model} tokens: about {self.acceptance.model_mean:.0%} are kept, "
            f"checking {n_model} costs {self._ms(n_model + 1)} ms, a plain token {self._ms(1)} ms"
        )
        drafting = n_model * self.costs.draft_step(now.context)
        return Plan("model", n_model, self.state, drafting + float(self._curve[n_model + 1]))

    def _best_copy(self, now: Situation) -> tuple[int, float]:
        survival = self.acceptance.ngram_survival(now.match_length, now.limit)
        extra = self._rate * (self._curve[2 : now.limit + 2] - self._curve[1])
        gain = np.where(extra <= self._stake, np.cumsum(survival) - extra, -1.0)
        best = int(gain.argmax())
        return best + 1, float(gain[best])

    def _best_model(self, now: Situation) -> tuple[int, float]:
        """The best length before anything is drafted; its gain less this round's share of reading the lag."""
        step = self.costs.draft_step(now.context)
        n = np.arange(1, MODEL_LIMIT + 1)
        seconds = n * step + self._curve[2 : MODEL_LIMIT + 2] - self._curve[1]
        self._hopeless = float(np.max(n - seconds / self._curve[1])) <= MARGIN
        if self._hopeless:
            self.parked = True
            i = int(np.argmax(n - seconds / self._curve[1])) + 1
            self.state = (
                f"draft model off: even if the target kept every candidate, drafting and checking {i} would cost "
                f"{1000 * (i * step + self._curve[i + 1]):.0f} ms, plain decoding {1000 * (i + 1) * self._curve[1]:.0f}"
            )
            return 0, -1.0
        gain = (np.cumsum(self.acceptance.model_mean ** n) - self._rate * seconds)[: now.limit]
        best = int(gain.argmax())
        lag = now.draft_lag or 0
        reading = self.costs.catch_up(lag, now.context) - step if lag > 2 else 0.0
        rounds = max(1.0, min(now.remaining, 256) / (1 + float(np.sum(self.acceptance.model_mean ** n[: best + 1]))))
        return best + 1, float(gain[best]) - self._rate * reading / rounds

    def _probe(self, now: Situation) -> Plan | None:
        """A short draft by a parked model, when it is due and its cost is under PROBE_SHARE of the time since the last."""
        lag = now.draft_lag
        if not self.use_model or lag is None or self._hopeless:
            return None
        if self._since_probe < self._probe_interval:
            return None
        length = min(2, now.limit)
        cost = self.costs.catch_up(lag, now.context) + length * self.costs.draft_step(now.context)
        cost += float(self._curve[length + 1] - self._curve[1])
        if cost > PROBE_SHARE * self._seconds_since_probe:
            return None
        self._probing = True
        self._probe_interval = min(2 * self._probe_interval, PROBE_LAST)
        self._since_probe, self._seconds_since_probe = 0, 0.0
        return Plan("model", length, "probing the parked draft model")

    def _stay_plain(self, now: Situation) -> Plan:
        if not self.use_model or now.draft_lag is None:
            self.state = "plain decoding: no earlier text to copy from pays here"
        elif not self._hopeless:
            self.parked = True
            self.state = (
                f"draft model off: about {self.acceptance.model_mean:.0%} of its tokens would be kept, and checking 4 "
                f"costs {self._ms(5)} ms, a plain token {self._ms(1)} ms; next probe in "
                f"{max(0, self._probe_interval - self._since_probe)} rounds"
            )
        return Plan("target", 0, self.state, float(self._curve[1]))

    # ---- within a model draft

    def go_on(self, confidence: Sequence[float]) -> bool:
        if self._probing:
            return True
        done = len(confidence)
        most = min(self._now.limit, MODEL_LIMIT) - done
        if most <= 0:
            return False
        survival = float(np.prod([self.acceptance.model_chance(c) for c in confidence]))
        n = np.arange(1, most + 1)
        seconds = n * self.costs.draft_step(self._now.context)
        seconds = seconds + self._curve[done + 2 : done + 2 + most] - self._curve[done + 1]
        gain = survival * np.cumsum(self.acceptance.model_mean ** n) - self._rate * seconds
        return bool(gain.max() > 0)

    def check(self, confidence: Sequence[float]) -> int:
        if self._probing:
            return len(confidence)
        survival = np.cumprod([self.acceptance.model_chance(c) for c in confidence])
        gain = np.cumsum(survival) - self._rate * (self._curve[2 : len(confidence) + 2] - self._curve[1])
        best = int(gain.argmax())
        return best + 1 if gain[best] > 0 else 0

    # ---- learning

    def observe(self, outcome: Outcome) -> None:
        seconds = outcome.seconds
        if self.learn_costs:
            self.costs.target.observe(outcome.rows, outcome.context, outcome.target_seconds)
        else:
            seconds = self.costs.verify(outcome.rows, outcome.context)
            if outcome.origin == "model":
                seconds += len(outcome.confidence) * self.costs.draft_step(outcome.context)
        self._tokens = 0.98 * self._tokens + outcome.emitted
        self._seconds = 0.98 * self._seconds + seconds
        self._since_plain = 0 if outcome.rows == 1 else self._since_plain + 1
        self._since_probe += 1
        self._seconds_since_probe += seconds
        self._stake += STAKE_SHARE * outcome.emitted
        if outcome.origin == "ngram":
            self._stake += outcome.emitted - 1 - self._rate * max(0.0, seconds - float(self._curve[1]))
            for i, kept in enumerate(outcome.kept):
                self.acceptance.observe_ngram(outcome.match_length + i, kept)
        elif outcome.lookup_kept is not None:
            self.acceptance.observe_ngram(outcome.match_length, outcome.lookup_kept)
        if outcome.origin == "model":
            for confidence, kept in zip(outcome.confidence, outcome.kept, strict=False):
                self.acceptance.observe_model(confidence, kept)
                self.acceptance.observe_ease(self._ease, kept)
        if outcome.target_confidence is not None:
            self._ease_count += 1
            self._ease += (outcome.target_confidence - self._ease) / min(self._ease_count, 24)
            if outcome.origin != "model" and self._ease_count >= 6:
                self.acceptance.expect(self._ease)

    # ---- helpers

    def _refresh_curve(self, now: Situation) -> None:
        """v by rows, index 0 unused; kept for a few rounds because looking up 64 figures takes 0.1 ms."""
        self._curve_age += 1
        size = max(now.limit, MODEL_LIMIT) + 2
        if self._curve_age > 16 or len(self._curve) < size or self._curve_context != now.context >> 9:
            self._curve = np.array([0.0] + [self.costs.verify(rows, now.context) for rows in range(1, size)])
            self._curve_age, self._curve_context = 0, now.context >> 9
        self._curve[1] = self.costs.verify(1, now.context)

    def _ms(self, rows: int) -> str:
        return f"{1000 * self.costs.verify(rows, self._now.context):.0f}"
