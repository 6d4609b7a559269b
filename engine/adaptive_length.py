"""How many tokens to draft, and by whom: whatever promises the most tokens per second. Nothing else counts.

A round that drafts n tokens keeps 1 + S(n) of them on average, S(n) = A_1 + ... + A_n with A_i the chance that the
first i are all kept, and costs n d + v(n + 1) seconds (d: one draft step, v: a target decode by rows). With lambda
the tokens per second this reply gets otherwise, drafting n is worth

    gain(n) = S(n) - lambda (n d + v(n + 1) - v(1))        in tokens,

and the best n is the one with the highest gain (Dinkelbach's method: with lambda the rate itself, the maximiser of
the gain is the maximiser of the rate). lambda is the plain rate 1 / v(1), or the rate of the last rounds if higher.
v is jagged, so every n is looked at, not the next one only. n = 0 is always a choice.

The model draft is decided again after each of its tokens, when its confidence is known: engine/stopping.py has the value
of going on. Where even a draft that is always right would not pay, the draft model is never read. Where it might, but is
not expected to, it is parked: the target's own confidence, which costs little, tells when the text turns easy enough; and
probes on a doubling schedule, at most 1 % of the time, catch what that misses. What may be lost is bounded by
engine/guard.py, so a length is only chosen if the reply can afford that all of it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engine.acceptance import EASE_MEMORY, AcceptanceModel
from engine.cost import CostModel
from engine.guard import Guard
from engine.length import PLAIN, Outcome, Plan, Situation
from engine.stopping import Table, stopping_values, value

MARGIN = 0.05
"""Tokens a draft must promise beyond break-even: half the noise of one decode on a busy 2-core machine."""
MODEL_MARGIN = 0.12
"""The same for the draft model, round after round: where v(1) is known to 3 %, less than that is not known to be a gain."""
MODEL_LIMIT = 16
"""Longest block the draft model is asked for."""
PROBE_FIRST, PROBE_LAST, PROBE_SHARE = 4, 512, 0.01
REMEASURE_PLAIN, REMEASURE_CLOSE, CLOSE = 64, 16, 1.25
"""Rounds after which v(1) is measured again if drafting never stops: sooner where it gains less than a quarter."""
COPY_CEILING = 4.0
"""lambda is at most this many plain rates, or the rate of the rounds that did not copy: that of a stretch that was copied
says little about what follows."""
EASE_SECONDS, EASE_SHARE = 0.00015, 0.002
"""What a look at the target's confidence takes (152,000 exponentials), and the share of the time it may take."""
READING_PAYS, REPLY_LENGTH = 1.5, 64
"""The draft model reads what it has missed if that promises so many times its cost over as many tokens again as the
reply has by now, or this many: nobody knows how long it will be."""
TRUSTED_PAYS = 3.0
"""The same for a reading that only a pair which has proved itself is granted (engine/guard.py)."""
USEFUL = 3
"""A reading of more than a token's time leaves room for a block of this many, or it would be paid for nothing."""
PLAIN_AT_LEAST = 0.985
"""Wins are booked against a plain token this much faster than believed: v(1) is seldom measured while drafting goes on."""
STREAK = 3
"""Decodes in a row that cost other than measured before plain decoding is measured again."""


@dataclass(slots=True)
class AdaptiveLength:
    """The rule of this module's docstring, for the lookup, the draft model, or both."""

    costs: CostModel
    acceptance: AcceptanceModel
    use_ngram: bool = True
    use_model: bool = True
    learn_costs: bool = True
    """False in seeded replies: no clock may then influence the text."""
    trims: bool = False
    """Whether the draft is a point mass, so that its candidates may be left out for what they are."""
    state: str = "starting"
    parked: bool = False
    guard: Guard = field(default_factory=Guard)
    _now: Situation = field(default_factory=lambda: Situation(0, 0, 0))
    _plan: Plan = PLAIN
    _curve: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    _curve_age: int = 0
    _curve_context: int = 0
    _step: float = 0.0
    _worst: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    _reading: float = 0.0
    _table: Table = field(default_factory=lambda: np.zeros((0, 0)))
    _table_key: tuple[float, float] = (0.0, 0.0)
    _table_age: int = 0
    _rate: float = 0.0
    _all: _RunningRate = field(default_factory=lambda: _RunningRate())
    _uncopied: _RunningRate = field(default_factory=lambda: _RunningRate())
    _since_plain: int = 0
    _measure_plain: bool = False
    _since_probe: int = 0
    _seconds_since_probe: float = 0.0
    _probe_interval: int = PROBE_FIRST
    _probing: bool = False
    _hopeless: bool = False
    _ease: float = 0.0
    _ease_count: int = 0
    _since_ease: int = 0

    def begin(self, prompt_tokens: int) -> None:
        self.acceptance.begin()
        self.guard.begin()
        self._all, self._uncopied = _RunningRate(), _RunningRate()
        self._since_probe, self._probe_interval, self._seconds_since_probe = 0, PROBE_FIRST, 0.0
        self._ease, self._ease_count, self._since_ease = 0.0, 0, 0
        self._measure_plain = self.parked = False

    @property
    def action(self) -> str | None:
        return self.guard.action

    @property
    def wants_ease(self) -> bool:
        if not self.use_model or self._now.draft_lag is None or self._hopeless or len(self._curve) == 0:
            return False
        return self._ease_count < 6 or (self._since_ease + 1) * EASE_SHARE * self._curve[1] >= EASE_SECONDS

    # ---- the choice

    def choose(self, now: Situation) -> Plan:
        self._now, self._probing, self.guard.action = now, False, None
        self._plan = self._choose(now)
        return self._plan

    def _choose(self, now: Situation) -> Plan:
        if now.limit <= 0 or not self.costs.target.known():
            return PLAIN
        self._refresh_curve(now)
        plain = 1 / float(self._curve[1])
        self._rate = max(plain, min(self._all.rate, COPY_CEILING * plain), self._uncopied.rate)
        due = REMEASURE_CLOSE if self._all.rate < CLOSE * plain else REMEASURE_PLAIN
        if self._measure_plain or self._since_plain >= due:
            self._measure_plain = False
            return Plan("target", 0, "measuring plain decoding again")
        n_copy, copy_gain = self._best_copy(now) if self.use_ngram and now.match_length else (0, 0.0)
        n_model, model_gain = self._best_model(now) if self.use_model and now.draft_lag is not None else (0, 0.0)
        if copy_gain <= MARGIN and model_gain <= MODEL_MARGIN:
            return self._probe(now) or self._stay_plain(now)
        if copy_gain >= model_gain or model_gain <= MODEL_MARGIN:
            self.state = f"copying up to {n_copy} tokens from earlier text after a match of {now.match_length}"
            return Plan("ngram", n_copy, self.state, float(self._curve[n_copy + 1]))
        if self.parked:
            self.guard.act(f"drafting again: about {self.acceptance.model_mean:.0%} of the draft's tokens should be kept")
        self.parked = False
        self._probe_interval = PROBE_FIRST
        self.state = (
            f"drafting up to {n_model} tokens: about {self.acceptance.model_mean:.0%} are kept, "
            f"checking {n_model} costs {self._ms(n_model + 1)} ms, a plain token {self._ms(1)} ms"
        )
        return Plan("model", n_model, self.state, n_model * self._step + float(self._curve[n_model + 1]))

    def _best_copy(self, now: Situation) -> tuple[int, float]:
        survival = self.acceptance.ngram_survival(now.match_length, now.limit)
        extra = self._curve[2 : now.limit + 2] - self._curve[1]
        allowed = self.guard.may(extra / self._curve[1], survival, self.acceptance.ngram_evidence)
        gain = np.where(allowed, np.cumsum(survival) - self._rate * extra, -1.0)
        best = int(gain.argmax())
        return best + 1, float(gain[best])

    def _best_model(self, now: Situation) -> tuple[int, float]:
        """The longest draft that may be asked for and what asking is worth; less this round's share of reading the lag."""
        self._step = self.costs.draft_step(now.context)
        n = np.arange(1, MODEL_LIMIT + 1)
        seconds = n * self._step + self._curve[2 : MODEL_LIMIT + 2] - self._curve[1]
        self._hopeless = float(np.max(n - seconds / self._curve[1])) <= MARGIN
        if self._hopeless:
            self.parked = True
            i = int(np.argmax(n - seconds / self._curve[1])) + 1
            self.state = (
                f"draft model off: even if the target kept every candidate, drafting and checking {i} would cost "
                f"{1000 * (i * self._step + self._curve[i + 1]):.0f} ms, plain decoding {1000 * (i + 1) * self._curve[1]:.0f}"
            )
            return 0, -1.0
        lag, mean = now.draft_lag or 0, self.acceptance.model_mean
        reading = self.costs.catch_up(lag, now.context) - self._step if lag > 2 else 0.0
        self._worst, self._reading = seconds / self._curve[1], reading / float(self._curve[1])
        length = min(MODEL_LIMIT, now.limit)
        gain = value(self._stopping(), 0, 1.0)
        rounds = min(now.remaining, max(REPLY_LENGTH, self.guard.written)) / (1 + gain + mean)
        if gain * rounds < READING_PAYS * self._rate * reading:
            return 0, -1.0
        if self.acceptance.model_trusted and gain * rounds >= TRUSTED_PAYS * self._rate * reading:
            self.guard.trust(self._reading)
        survival = np.power(mean, n.astype(np.float64))
        allowed = np.flatnonzero(self.guard.may(self._worst, survival, self._evidence, self._reading)[:length])
        longest = int(allowed[-1]) + 1 if len(allowed) else 0
        if longest == 0 or (self._reading > 1 and longest < min(USEFUL, length)):
            return 0, -1.0
        return longest, gain - self._rate * reading / max(1.0, rounds)

    @property
    def _evidence(self) -> float:
        """Judged candidates; the target's own confidence, which foretells them, counts half."""
        return self.acceptance.model_evidence + 0.5 * min(self._ease_count, 24)

    def _stopping(self) -> Table:
        """The values of going on, worked out anew when what they stand on has moved."""
        mean, rate = key = self.acceptance.model_mean, self._rate
        self._table_age += 1
        stale = self._table_age > 16 or abs(mean - self._table_key[0]) > 0.03 or abs(rate - self._table_key[1]) > 0.05 * rate
        if stale or len(self._table) == 0:
            chances, weights = self.acceptance.next_model()
            extra = np.diff(self._curve[1 : MODEL_LIMIT + 2])
            self._table = stopping_values(chances, weights, rate * extra, rate * self._step, self.trims)
            self._table_key, self._table_age = key, 0
        return self._table

    def _probe(self, now: Situation) -> Plan | None:
        """A short draft by a parked model, when it is due and its cost is under PROBE_SHARE of the time since the last."""
        lag = now.draft_lag
        if not self.use_model or lag is None or self._hopeless:
            return None
        if self._since_probe < self._probe_interval:
            return None
        length = min(2, now.limit)
        cost = self.costs.catch_up(lag, now.context) + (length - 1) * self._step
        cost += float(self._curve[length + 1] - self._curve[1])
        if cost > PROBE_SHARE * self._seconds_since_probe or cost > self.guard.balance * self._curve[1]:
            return None
        self._probing = True
        self._probe_interval = min(2 * self._probe_interval, PROBE_LAST)
        self._since_probe, self._seconds_since_probe = 0, 0.0
        return Plan("model", length, "probing the parked draft model")

    def _stay_plain(self, now: Situation) -> Plan:
        if not self.use_model or now.draft_lag is None:
            self.state = "plain decoding: no earlier text to copy from pays here"
        elif not self._hopeless:
            if not self.parked and self.guard.written and self.guard.action is None:
                self.guard.act(f"draft model parked: only {self.acceptance.model_mean:.0%} of its tokens would be kept")
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
        done, length = len(confidence), min(self._now.limit, MODEL_LIMIT)
        if done >= length:
            return False
        known = np.cumprod([self.acceptance.model_chance(c) for c in confidence])
        if value(self._stopping(), done, float(known[-1])) <= 0:
            return False
        survival = np.concatenate([known, known[-1] * self.acceptance.model_mean ** np.arange(1, length - done + 1)])
        return bool(self.guard.may(self._worst[:length], survival, self._evidence, self._reading)[done:].any())

    def check(self, confidence: Sequence[float]) -> int:
        if self._probing:
            return len(confidence)
        survival = np.cumprod([self.acceptance.model_chance(c) for c in confidence])
        gain = np.cumsum(survival) - self._rate * (self._curve[2 : len(confidence) + 2] - self._curve[1])
        best = int(gain.argmax())
        n = best + 1 if gain[best] > 0 else 0
        if n < len(confidence):
            self.acceptance.left_out(confidence[n])
        return n

    # ---- learning

    def observe(self, outcome: Outcome) -> None:
        drafting = outcome.seconds - outcome.target_seconds if self._plan.origin == "model" else 0.0
        seconds = outcome.seconds
        if self.learn_costs:
            self._learn_costs(outcome)
        else:
            drafting = len(outcome.confidence) * self.costs.draft_step(outcome.context) if self._plan.origin == "model" else 0.0
            seconds = drafting + self.costs.verify(outcome.rows, outcome.context)
        self._settle(outcome, drafting, seconds)
        self._all.add(outcome.emitted, seconds)
        if outcome.origin != "ngram":
            self._uncopied.add(outcome.emitted, seconds)
        self._since_plain = 0 if outcome.rows == 1 else self._since_plain + 1
        self._since_probe += 1
        self._seconds_since_probe += seconds
        if outcome.origin == "ngram":
            for i, kept in enumerate(outcome.kept):
                self._watch("copies", float(self.acceptance.ngram_survival(outcome.match_length + i, 1)[0]), kept)
                self.acceptance.observe_ngram(outcome.match_length + i, kept)
        elif outcome.lookup_kept is not None:
            self.acceptance.observe_ngram(outcome.match_length, outcome.lookup_kept)
        if outcome.origin == "model":
            for confidence, kept in zip(outcome.confidence, outcome.kept, strict=False):
                self._watch("the draft model", self.acceptance.model_chance(confidence), kept)
                self.acceptance.observe_model(confidence, kept)
                self.acceptance.observe_ease(self._ease, kept)
        self._since_ease += 1
        if outcome.target_confidence is not None:
            self._since_ease = 0
            self._ease_count += 1
            self._ease += (outcome.target_confidence - self._ease) / min(self._ease_count, EASE_MEMORY)
            if outcome.origin != "model" and self._ease_count >= 6:
                self.acceptance.expect(self._ease)

    def _settle(self, outcome: Outcome, drafting: float, seconds: float) -> None:
        """Book what the round won or lost; a stall in a decode is not the draft's fault."""
        if self._plan.length == 0:
            self.guard.settle(outcome.emitted, None)
            return
        plain = float(self._curve[1])
        checking = seconds - drafting
        if abs(self.costs.target.streak) < 2:
            checking = min(checking, 1.5 * float(self._curve[outcome.rows]))
        self.guard.settle(outcome.emitted, outcome.emitted - (drafting + checking) / (PLAIN_AT_LEAST * plain))

    def _watch(self, drafter: str, expected: float, kept: float) -> None:
        if self.guard.surprised(drafter, expected, kept):
            self.guard.act(f"{drafter}: tokens are refused that should have been kept; drafting less until they are kept again")
            if drafter == "the draft model":
                self.acceptance.model_mean = min(self.acceptance.model_mean, 0.3)

    def _learn_costs(self, outcome: Outcome) -> None:
        target = self.costs.target
        expected = target.seconds(outcome.rows, outcome.context)
        target.observe(outcome.rows, outcome.context, outcome.target_seconds)
        if abs(target.streak) == STREAK:
            self._curve_age = 1 << 30
            self._measure_plain = outcome.rows > 1
            self._all, self._uncopied = _RunningRate(), _RunningRate()
            self.guard.act(
                f"a decode of {outcome.rows} {'row' if outcome.rows == 1 else 'rows'} takes "
                f"{outcome.target_seconds / expected:.1f} x what was measured: costs are learned anew"
            )

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


@dataclass(slots=True)
class _RunningRate:
    """Tokens per second of about the last 50 rounds; 0 before the first."""

    tokens: float = 0.0
    seconds: float = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        self.tokens, self.seconds = 0.98 * self.tokens + tokens, 0.98 * self.seconds + seconds

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds if self.seconds > 0 else 0.0
