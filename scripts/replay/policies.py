"""Other programs' length rules, written from their descriptions, in the form the replay asks for; and two oracles.

Each follows what the program is documented or described to do, not its code. Where a description leaves a number
open, the class says what was taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.length import PLAIN, LengthPolicy, Outcome, Plan, Situation
from scripts.replay.machine import Machine
from scripts.replay.simulate import DraftView, LookupView
from scripts.replay.trace import ReplyTrace


@dataclass(slots=True)
class Rule:
    """What all of these share: a model draft of at most `length`, whole, learned from not at all."""

    length: int = 3
    state: str = "a rule of another program"
    parked: bool = False
    wants_ease: bool = False

    def begin(self, prompt_tokens: int) -> None:
        pass

    def choose(self, now: Situation) -> Plan:
        length = min(self.length, now.limit)
        return Plan("model", length, self.state) if length > 0 and now.draft_lag is not None else PLAIN

    def go_on(self, confidence: Sequence[float]) -> bool:
        return True

    def check(self, confidence: Sequence[float]) -> int:
        return len(confidence)

    def observe(self, outcome: Outcome) -> None:
        pass


@dataclass(slots=True)
class ConfidenceFloor(Rule):
    """llama.cpp's p_min: the draft ends before its first candidate less likely than `floor` (its greedy draft may do so)."""

    length: int = 16
    floor: float = 0.75

    def go_on(self, confidence: Sequence[float]) -> bool:
        return confidence[-1] >= self.floor

    def check(self, confidence: Sequence[float]) -> int:
        return len(confidence) - (confidence[-1] < self.floor)


@dataclass(slots=True)
class DynamicSpeculation(Rule):
    """Hugging Face's dynamic speculation: up to 20 candidates, ended after one below a threshold that starts at 0.4 and is
    moved to where, on what was seen, false drafts plus three times missed ones are fewest."""

    length: int = 20
    threshold: float = 0.4
    _seen: list[tuple[float, bool]] = field(default_factory=list)

    def begin(self, prompt_tokens: int) -> None:
        """What was seen is the reply's own; the threshold stays."""
        self._seen = []

    def go_on(self, confidence: Sequence[float]) -> bool:
        return confidence[-1] >= self.threshold

    def observe(self, outcome: Outcome) -> None:
        accepted = outcome.emitted - 1
        self._seen += [(c, i < accepted) for i, c in enumerate(outcome.confidence[: accepted + 1])]
        kept = np.array([k for _, k in self._seen], dtype=bool)
        if outcome.confidence and len(self._seen) > 5 and kept.any() and not kept.all():
            values = np.array([c for c, _ in self._seen])
            cuts = np.unique(values)
            below = values[None, :] < cuts[:, None]
            missed = (below & kept).sum(axis=1) / kept.sum()
            false = (~below & ~kept).sum(axis=1) / (~kept).sum()
            self.threshold = float(cuts[(false + 3 * missed).argmin()])


@dataclass(slots=True)
class PositionAverage(Rule):
    """Ollama's MLX runner: acceptance averaged by position (0.1, from 10 samples on), the cost of a round averaged by
    depth (0.3, at most 25 % a step, only where the depth is the last round's), the depth with most tokens per second up to
    one beyond the deepest known; off where that is 0, tried again after 4 rounds, doubling to 512."""

    length: int = 16
    _acceptance: list[float] = field(default_factory=list)
    _samples: list[int] = field(default_factory=list)
    _cost: dict[int, float] = field(default_factory=dict)
    _last: int = -1
    _pause: int = 4
    _waited: int = 0

    def choose(self, now: Situation) -> Plan:
        depth = self._depth()
        if depth == 0:
            self._waited += 1
            if self._waited < self._pause and 0 in self._cost:
                return PLAIN
            if self._waited >= self._pause:
                self._waited, self._pause, depth = 0, min(2 * self._pause, 512), 1
        length = min(depth, self.length, now.limit)
        return Plan("model", length, self.state) if length > 0 else PLAIN

    def _depth(self) -> int:
        known = sum(n >= 10 for n in self._samples)
        if not self._cost:
            return 1
        best, best_rate, expected, reach = 0, 1 / self._cost[0] if 0 in self._cost else 0.0, 1.0, 1.0
        slope = self._slope()
        for n in range(1, min(known + 1, self.length) + 1):
            reach *= self._acceptance[n - 1] if n <= known else (self._acceptance[known - 1] if known else 0.8)
            expected += reach
            nearest = min(self._cost, key=lambda d, n=n: abs(d - n))  # type: ignore[misc]
            cost = self._cost.get(n, self._cost[nearest] + slope * (n - nearest))
            if expected / max(cost, 1e-9) > best_rate:
                best, best_rate = n, expected / max(cost, 1e-9)
        return best

    def _slope(self) -> float:
        depths = sorted(self._cost)
        return (self._cost[depths[-1]] - self._cost[depths[0]]) / (depths[-1] - depths[0]) if len(depths) > 1 else 0.0

    def observe(self, outcome: Outcome) -> None:
        depth = len(outcome.confidence)
        if depth == self._last or depth not in self._cost:
            old = self._cost.get(depth, outcome.seconds)
            step = 0.3 * (outcome.seconds - old)
            self._cost[depth] = old + max(-0.25 * old, min(0.25 * old, step))
        self._last = depth
        for i in range(min(outcome.emitted, depth)):
            while len(self._acceptance) <= i:
                self._acceptance.append(0.8)
                self._samples.append(0)
            self._acceptance[i] += 0.1 * (float(i < outcome.emitted - 1) - self._acceptance[i])
            self._samples[i] += 1
        if depth and outcome.emitted > 1:
            self._pause = 4


@dataclass(slots=True)
class Profit(Rule):
    """BeeLlama's `profit`: survival averaged by position (0.15), a measured no-draft rate, the rung of a ladder with the best
    (1 + E) / cycle time, two rungs up or one down at a time with 5 % hysteresis; off after 8 cycles below 1.05 of no-draft,
    then a probe every 16 cycles at a quarter of the longest."""

    length: int = 16
    _survival: list[float] = field(default_factory=lambda: [0.7**i for i in range(1, 17)])
    _cycle: dict[int, float] = field(default_factory=dict)
    _rung: int = 4
    _bad: int = 0
    _off: bool = False
    _count: int = 0

    LADDER = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)

    def choose(self, now: Situation) -> Plan:
        self._count += 1
        if 0 not in self._cycle or self._count % 1024 == 0:
            return PLAIN
        depth = self.LADDER[self._rung]
        if self._off:
            depth = self.length // 4 if self._count % 16 == 0 else 0
        elif self._count % 12 == 0:
            depth = self.LADDER[min(self._rung + 1, len(self.LADDER) - 1)]
        length = min(depth, now.limit)
        return Plan("model", length, self.state) if length > 0 else PLAIN

    def _rate(self, depth: int) -> float:
        known = sorted(self._cycle)
        seconds = float(np.interp(depth, known, [self._cycle[d] for d in known]))
        if depth > known[-1] and len(known) > 1:
            seconds += (self._cycle[known[-1]] - self._cycle[known[0]]) / (known[-1] - known[0]) * (depth - known[-1])
        return (1 + sum(self._survival[:depth])) / seconds

    def observe(self, outcome: Outcome) -> None:
        depth = len(outcome.confidence)
        self._cycle[depth] = self._cycle.get(depth, outcome.seconds) * 0.85 + 0.15 * outcome.seconds
        for i in range(depth):
            self._survival[i] += 0.15 * (float(i < outcome.emitted - 1) - self._survival[i])
        if not depth or 0 not in self._cycle:
            return
        base = self._rate(0)
        rates = [self._rate(d) for d in self.LADDER]
        best = int(np.argmax(rates))
        if rates[best] > 1.05 * rates[self._rung]:
            self._rung = min(best, self._rung + 2) if best > self._rung else max(best, self._rung - 1)
        self._rung = max(1, self._rung)
        self._bad = self._bad + 1 if max(rates[1:]) < 1.05 * base else 0
        self._off = self._bad >= 8


@dataclass(slots=True)
class AcceptedAverage(Rule):
    """ExLlamaV3's dynamic draft: the length is a running mean of the tokens kept (one more where all were), quicker up than
    down; off below 0.3, tried again every 16 rounds. The description gives 1.30 and 0.65 as weights of a step; 0.25 is taken."""

    length: int = 16
    _mean: float = 3.0
    _count: int = 0

    def choose(self, now: Situation) -> Plan:
        self._count += 1
        want = round(self._mean) if self._mean >= 0.3 else int(self._count % 16 == 0)
        length = min(max(want, int(self._mean >= 0.3)), self.length, now.limit)
        return Plan("model", length, self.state) if length > 0 else PLAIN

    def observe(self, outcome: Outcome) -> None:
        if depth := len(outcome.confidence):
            accepted = outcome.emitted - 1
            seen = accepted + (accepted == depth)
            self._mean += 0.25 * (1.30 if seen > self._mean else 0.65) * (seen - self._mean)


@dataclass(slots=True)
class LookupFirst:
    """Any rule with a fixed lookup before it: after a match of `shortest`, copy `block` tokens."""

    rule: LengthPolicy
    shortest: int = 8
    block: int = 15
    wants_ease: bool = False

    @property
    def state(self) -> str:
        return self.rule.state

    @property
    def parked(self) -> bool:
        return self.rule.parked

    def begin(self, prompt_tokens: int) -> None:
        self.rule.begin(prompt_tokens)

    def choose(self, now: Situation) -> Plan:
        if now.match_length >= self.shortest and now.limit > 0:
            return Plan("ngram", min(self.block, now.limit), "copying")
        return self.rule.choose(now)

    def go_on(self, confidence: Sequence[float]) -> bool:
        return self.rule.go_on(confidence)

    def check(self, confidence: Sequence[float]) -> int:
        return self.rule.check(confidence)

    def observe(self, outcome: Outcome) -> None:
        if outcome.origin != "ngram":
            self.rule.observe(outcome)


def all_knowing(trace: ReplyTrace, machine: Machine, draft: DraftView | None, copies: LookupView | None, longest: int = 16) -> float:
    """Seconds of the fastest way through the reply for one who knows every acceptance: a bound no rule can reach."""
    n, prompt = len(trace), len(trace.prompt)
    best = np.zeros(n + 1)
    for i in range(n - 1, 0, -1):
        context = prompt + i
        seconds = machine.verify(1, context) + best[i + 1]
        if draft is not None:
            run = 0
            while run < longest and i + run < n and draft.kept[i + run]:
                run += 1
            for k in range(1, run + 1):
                cost = machine.verify(k + 1, context) + k * machine.draft_read(1, context)
                seconds = min(seconds, cost + best[min(n, i + k + 1)])
        if copies is not None and copies.match[i]:
            for k in range(1, min(copies.run[i], 63) + 1):
                seconds = min(seconds, machine.verify(k + 1, context) + best[min(n, i + k + 1)])
        best[i] = seconds
    return float(best[1])
