"""Replay a recorded reply under any length rule and any costs: the decoder's round, without models or clock.

The rules are the engine's own objects, asked as engine.decoder asks them. What a draft would have proposed and whether
the target would have kept it stands in the trace (DraftView); what the lookup would have copied is worked out once per
trace by the real NgramDrafter (LookupView). Candidates are kept one by one, as in token-wise rejection sampling; the
engine's block verification keeps a few more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from engine.acceptance import AcceptanceModel
from engine.agreement import PLACES
from engine.drafters.ngram import NgramDrafter
from engine.length import LengthPolicy, Outcome, Situation
from engine.sampling import Distribution
from scripts.replay.machine import Clock, Machine
from scripts.replay.trace import ReplyTrace

MAX_BLOCK = 64
MAX_TOKENS = 1024
"""What a request allows; a reply that ended by itself is not known to end beforehand."""


@dataclass(frozen=True, slots=True, eq=False)
class DraftView:
    """What a draft model does at every place of a trace. `chance`: of being kept, given the proposal; `branch`:
    confidences that follow a refused one."""

    confidence: list[float]
    kept: list[bool]
    chance: list[float]
    branch: list[list[float]]
    point_mass: bool
    """Chosen without chance, so that candidates may be left out for what they are."""


def sampled_draft(trace: ReplyTrace) -> DraftView:
    """The recorded draft: drawn from q, kept by rejection sampling."""
    chance = []
    for t in range(len(trace)):
        x = int(trace.drafted[t])
        q = trace.q[t].prob(x)
        chance.append(min(1.0, trace.p[t].prob(x) / q) if q > 0 else 0.0)
    return DraftView(
        [trace.confidence(t) for t in range(len(trace))], [trace.kept(t) for t in range(len(trace))], chance,
        [list(piece) for piece in trace.branch], trace.temperature == 0,
    )


def greedy_draft(trace: ReplyTrace) -> DraftView:
    """The draft's likeliest token, kept if the target happens to draw the same: llama.cpp's rule."""
    best = [int(q.ids[q.probs.argmax()]) for q in trace.q]
    after = [list(piece) or [0.5] for piece in trace.branch]
    return DraftView(
        list(trace.top), [x == y for x, y in zip(best, trace.tokens, strict=True)],
        [p.prob(x) for p, x in zip(trace.p, best, strict=True)], after, True,
    )


def tempered_draft(trace: ReplyTrace, factor: float, rng: np.random.Generator) -> DraftView:
    """The recorded draft at `factor` times the request's temperature, coupled anew. (llama.cpp filters before it applies
    the temperature, so the same tokens are left.)"""
    if trace.temperature == 0:
        return sampled_draft(trace)
    confidence, kept, chance = [], [], []
    for y, p, q in zip(trace.tokens, trace.p, trace.q, strict=True):
        weights = q.probs ** (1 / factor)
        q = Distribution(q.ids, weights / weights.sum())
        x = int(y)
        if rng.random() * p.prob(x) >= q.prob(x):
            rest = q.excess(1.0, p)
            if rest.sum() > 0:
                x = Distribution(q.ids, rest / rest.sum()).draw(rng.random())
        kept.append(x == y)
        confidence.append(q.prob(x))
        chance.append(min(1.0, p.prob(x) / q.prob(x)) if q.prob(x) > 0 else 0.0)
    return DraftView(confidence, kept, chance, [list(piece) or [0.5] for piece in trace.branch], False)


def noise_draft(trace: ReplyTrace, rng: np.random.Generator, sure: bool, start: int = 0) -> DraftView:
    """The recorded draft until place `start`, then one that is always wrong. `sure`: with the confidences of a good one."""
    good, n = sampled_draft(trace), len(trace)
    confidence = rng.permutation(good.confidence) if sure else rng.uniform(0.0, 0.1, n)
    return DraftView(
        [*good.confidence[:start], *confidence[start:].tolist()], [*good.kept[:start], *[False] * (n - start)],
        [*good.chance[:start], *[0.0] * (n - start)],
        [*good.branch[:start], *[rng.choice(confidence, 8).tolist() for _ in range(n - start)]],
        good.point_mass,
    )


def first_acceptance(trace: ReplyTrace, draft: DraftView) -> AcceptanceModel:
    """What the first load of the pair would have learned, had it read the beginning of `trace` (engine/agreement.py)."""
    acceptance = AcceptanceModel()
    acceptance.learn([(draft.confidence[t], float(trace.ease[t]), draft.chance[t]) for t in range(min(PLACES, len(trace)))])
    return acceptance


def joined(traces: Sequence[ReplyTrace]) -> ReplyTrace:
    """One reply made of several, as if the first had gone on with the others' texts."""
    first = traces[0]
    return replace(
        first, ended=traces[-1].ended, **{name: np.concatenate([getattr(t, name) for t in traces]) for name in ("tokens", "ease", "top", "drafted")},
        **{name: tuple(piece for t in traces for piece in getattr(t, name)) for name in ("p", "q", "branch")},
    )


@dataclass(frozen=True, slots=True, eq=False)
class LookupView:
    """The n-gram lookup at every place: match length (0: none), how many of its tokens the reply goes on with, and the
    chance the target gives its first token, and the one it refuses."""

    match: list[int]
    run: list[int]
    first: list[float]
    refused: list[float]


NO_LOOKUP = LookupView([], [], [], [])


def lookup(trace: ReplyTrace, make: Callable[[], NgramDrafter] = NgramDrafter) -> LookupView:
    """Follow the reply with the real lookup."""
    drafter, tokens, n = make(), trace.tokens.tolist(), len(trace)
    drafter.begin(trace.prompt.tolist())
    match, run, first, refused = [0] * n, [0] * n, [0.0] * n, [0.0] * n
    for t in range(n):
        if guess := drafter.peek():
            match[t] = guess[1]
            first[t] = trace.p[t].prob(guess[0])
            copied = drafter.propose(MAX_BLOCK - 1).tokens
            k = 0
            while k < len(copied) and t + k < n and copied[k] == tokens[t + k]:
                k += 1
            run[t] = k
            refused[t] = trace.p[t + k].prob(copied[k]) if k < len(copied) and t + k < n else 0.0
        drafter.observe(tokens[t : t + 1])
    return LookupView(match, run, first, refused)


@dataclass(slots=True)
class Score:
    """A replayed reply, in true seconds. `plain`: the same tokens without drafting."""

    tokens: int = 0
    seconds: float = 0.0
    plain: float = 0.0
    rounds: int = 0
    drafted: int = 0
    kept: int = 0
    copied: int = 0
    lengths: list[int] = field(default_factory=list)
    worst: float = 0.0
    """The most plain tokens' time that the reply was ever behind plain decoding, counted from any earlier place."""
    actions: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Throughput as a multiple of plain decoding's."""
        return self.plain / self.seconds if self.seconds else 1.0


@dataclass(frozen=True, slots=True)
class Fault:
    """From token `start` until `end` decodes take `factor` times as long: all of them, or only the target's of more than
    one row."""

    start: int
    factor: float
    end: int = 1 << 30
    blocks_only: bool = False

    def at(self, token: int, rows: int = 1) -> float:
        return self.factor if self.start <= token < self.end and (rows > 1 or not self.blocks_only) else 1.0


NO_FAULT = Fault(0, 1.0)


def replay(
    trace: ReplyTrace, policy: LengthPolicy, machine: Machine, draft: DraftView | None = None, copies: LookupView = NO_LOOKUP,
    clock: Clock | None = None, fault: Fault = NO_FAULT, draft_limit: int = 63, ease_seconds: float = 0.0,
) -> Score:
    """Decode `trace` after its first token under `policy`. `draft` None: there is no draft model. ease_seconds: what
    looking at the target's confidence costs, where the rule asks for it."""
    clock, score, n = clock or Clock(), Score(), len(trace)
    prompt = len(trace.prompt)
    policy.begin(prompt)
    i, read, ahead, ahead_least = 1, 0, 0.0, 0.0
    on_draft_cost = policy.costs.draft.observe if hasattr(policy, "costs") and getattr(policy, "learn_costs", False) else None
    while i < n:
        context, slow = prompt + i, fault.at(i)
        remaining = (MAX_TOKENS if trace.ended else n) - i
        limit = max(0, min(MAX_BLOCK - 1, remaining - 1))
        match = copies.match[i] if copies.match else 0
        lag = context - read if draft is not None else None
        plan = policy.choose(Situation(context, limit, remaining, match, lag))
        origin, seconds, shown, rows, accepted = "target", 0.0, 0.0, 1, 0
        kept: tuple[float, ...] = ()
        confidence: tuple[float, ...] = ()
        if plan.origin == "ngram" and plan.length > 0:
            origin, length = "ngram", plan.length
            accepted = min(copies.run[i], length, n - i)
            kept = tuple(_p(trace, i + k) for k in range(accepted))
            if accepted < length and i + accepted < n:
                kept += (copies.refused[i] if accepted == copies.run[i] else 0.0,)
            rows = length + 1
            score.copied += accepted
        elif plan.origin == "model" and plan.length > 0 and draft is not None and lag is not None:
            proposed: list[float] = []
            true_run = 0
            while True:
                cost = machine.draft_read(max(1, lag) if not proposed else 1, context) * slow
                seconds += cost
                measured = clock.read(cost)
                shown += measured
                if on_draft_cost is not None:
                    on_draft_cost(max(1, lag) if not proposed else 1, context, measured)
                proposed.append(_confidence(draft, i, len(proposed), true_run, n))
                if true_run == len(proposed) - 1 and i + true_run < n and draft.kept[i + true_run]:
                    true_run += 1
                if len(proposed) >= min(plan.length, draft_limit) or not policy.go_on(proposed):
                    break
            read = context + min(true_run, len(proposed) - 1)
            length = policy.check(proposed) if draft.point_mass else len(proposed)
            accepted = min(true_run, length)
            confidence = tuple(proposed[:length])
            kept = tuple(draft.chance[i + k] for k in range(min(accepted + 1, length, n - i)))
            origin = "model" if length else "target"
            rows = length + 1
            score.drafted += len(proposed)
            score.kept += accepted
        cost = machine.verify(rows, context) * fault.at(i, rows)
        ease = None
        if policy.wants_ease:
            ease = float(trace.ease[i])
            cost += ease_seconds
        checking = clock.read(cost)
        emitted = min(accepted + 1, n - i)
        guess = (copies.first[i] if match else None) if origin != "ngram" else None
        policy.observe(Outcome(
            origin, rows, context, emitted, kept, confidence, match, guess, shown + checking, checking, ease,  # type: ignore[arg-type]
        ))
        seconds += cost
        plain = sum(machine.verify(1, context + k) for k in range(emitted)) * slow
        score.lengths.append(rows - 1 if origin != "target" else 0)
        score.seconds += seconds
        score.plain += plain
        score.rounds += 1
        ahead += (plain - seconds) / (machine.verify(1, context) * slow)
        ahead_least = max(ahead_least, ahead)
        score.worst = max(score.worst, ahead_least - ahead)
        if (action := getattr(policy, "action", None)) and (not score.actions or score.actions[-1] != action):
            score.actions.append(action)
        i += emitted
    score.tokens = n - 1
    return score


def fixed_ratio(
    trace: ReplyTrace, machine: Machine, draft: DraftView, length: int, copies: LookupView = NO_LOOKUP, shortest: int = 8,
    block: int = 15,
) -> float:
    """What `replay` gives for FixedLength("model", length, ...), behind LookupFirst where there are `copies`; much faster,
    as a table asks for sixteen lengths of every reply."""
    i, read, n, prompt, seconds = 1, 0, len(trace), len(trace.prompt), 0.0
    while i < n:
        context = prompt + i
        limit = max(0, min(MAX_BLOCK - 1, (MAX_TOKENS if trace.ended else n) - i - 1))
        if copies.match and copies.match[i] >= shortest and limit > 0:
            candidates = min(block, limit)
            accepted = min(copies.run[i], candidates)
        else:
            candidates = min(length, limit)
            accepted = 0
            while accepted < candidates and i + accepted < n and draft.kept[i + accepted]:
                accepted += 1
            if candidates:
                seconds += machine.draft_read(context - read, context) + (candidates - 1) * machine.draft_read(1, context)
                read = context + min(accepted, candidates - 1)
        seconds += machine.verify(candidates + 1, context)
        i += min(accepted + 1, n - i)
    return plain_seconds(trace, machine) / seconds if seconds else 1.0


def plain_seconds(trace: ReplyTrace, machine: Machine) -> float:
    """The reply without drafting, after its first token."""
    return sum(machine.verify(1, len(trace.prompt) + t) for t in range(1, len(trace)))


def _p(trace: ReplyTrace, t: int) -> float:
    return 1.0 if trace.temperature == 0 else trace.p[t].prob(int(trace.tokens[t]))


def _confidence(draft: DraftView, i: int, k: int, true_run: int, n: int) -> float:
    """Of the k-th candidate: recorded while all before it were kept, else from the branch after the first refused."""
    if k == true_run:
        return draft.confidence[min(i + k, n - 1)]
    branch = draft.branch[min(i + true_run, n - 1)]
    after = k - true_run - 1
    return branch[min(after, len(branch) - 1)] if branch else 0.5
