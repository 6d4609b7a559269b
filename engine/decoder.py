"""The loop: compose, score, accept, resample, repeat. One reply at a time, cancellable between and inside stages.

Everything the loop decides with is handed to it (`Reply`); it owns no model. A reply ends at an end-of-generation
token, a stop string, the token limit, a full context or a cancel, wherever in a block that falls; what the session
then holds is exactly the prompt and the tokens the reply is made of.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engine.attribution import Attribution
from engine.cost import CostModel
from engine.drafters.base import Drafter
from engine.drafters.model import ModelDrafter
from engine.drafters.ngram import NgramDrafter
from engine.errors import DecodeAborted
from engine.length import LengthPolicy, Outcome, Plan, Situation
from engine.llama.binding import CancelFlag, native_seconds
from engine.llama.model import Model
from engine.llama.sampler import SamplerChain
from engine.metrics import Metrics, Trace
from engine.sampling import Distribution
from engine.session import Session
from engine.text_stream import TextStream
from engine.values import (
    Draft,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    Origin,
    PrefillProgress,
    Round,
    RoundDone,
    TextDelta,
    TokenId,
    Written,
)
from engine.verify import accept_block, accept_by_match, resample


@dataclass(slots=True)
class Reply:
    """One reply in the making: what the loop needs, and what it leaves behind."""

    request: GenerationRequest
    prompt: list[TokenId]
    chain: SamplerChain
    policy: LengthPolicy
    lookup: NgramDrafter | None
    draft_model: ModelDrafter | None
    max_block: int
    rng: np.random.Generator
    stream: TextStream
    trace: Trace
    costs: CostModel | None = None
    """To say what a plain token would take; decides nothing."""
    metrics: Metrics = field(init=False)
    attribution: Attribution = field(default_factory=Attribution)
    text: str = ""
    tokens: list[TokenId] = field(default_factory=list)
    """The reply's ids, without the token that ended it."""
    reason: FinishReason | None = None

    @property
    def written(self) -> Written:
        """As tokens."""
        return Written(tuple(self.prompt), tuple(self.tokens), self.reason == "stop" and not self.stream.stopped)

    @property
    def drafters(self) -> list[Drafter]:
        """All that must hear of every token, whoever drafted it."""
        return [drafter for drafter in (self.lookup, self.draft_model) if drafter is not None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What checking a draft decided: the kept length, the token after it, and what that teaches."""

    accepted: int
    token: TokenId
    kept: tuple[float, ...]
    first: Distribution | None
    """The target's distribution for the first place; None in greedy replies."""


class Decoder:
    """Runs replies on one session."""

    def __init__(self, session: Session, model: Model, cancel: CancelFlag) -> None:
        self._session = session
        self._model = model
        self._cancel = cancel

    def run(self, reply: Reply) -> Iterator[GenerationEvent]:
        """Decode until the reply ends; sets reply.reason. Raises EngineError; the session stays usable."""
        session = self._session
        cached = session.begin(reply.prompt, reproducible=reply.request.reproducible)
        reply.metrics = Metrics(len(reply.prompt), cached)
        yield PrefillProgress(cached, len(reply.prompt), cached)
        try:
            yield from self._prefill(reply, cached)
            for drafter in reply.drafters:
                drafter.begin(reply.prompt)
            reply.policy.begin(len(reply.prompt))
            reply.chain.begin(reply.prompt)
            while reply.reason is None:
                yield from self._round(reply)
        except DecodeAborted:
            reply.reason = "cancelled"
        rest = reply.stream.finish() if reply.reason != "stop" or not reply.stream.stopped else ""
        if rest:
            reply.text += rest
            yield TextDelta(rest, *reply.attribution.take(len(rest)))

    def _prefill(self, reply: Reply, cached: int) -> Iterator[GenerationEvent]:
        """Read the prompt but for its last batch, which the first round scores."""
        for done in self._session.prefill():
            yield PrefillProgress(done, len(reply.prompt), cached)

    def _round(self, reply: Reply) -> Iterator[GenerationEvent]:
        """One round of the five stages; ends the reply by setting reply.reason."""
        if self._cancel.is_set():
            reply.reason = "cancelled"
            return
        session, metrics = self._session, reply.metrics
        first = metrics.ttft is None
        started, native = time.perf_counter(), native_seconds()
        context = len(session.tokens)
        guess = reply.lookup.peek() if reply.lookup else None
        plan = Plan("target", 0, "reading the prompt") if first else self._plan(reply, guess)
        draft = self._compose(reply, plan)                                    # 1 compose a candidate block
        drafted = time.perf_counter()
        rows = session.score(draft.tokens)                                    # 2 score it in one decode
        scored = time.perf_counter()
        verdict = self._check(reply, draft)                                   # 3 accept, 4 resample
        ease = self._ease() if reply.policy.wants_ease and not first else None
        sampled = time.perf_counter()
        block = [*draft.tokens[: verdict.accepted], verdict.token]
        origins: list[Origin] = [*[draft.origin] * verdict.accepted, "target"]
        emitted, read, text = self._emit(reply, block, origins)
        session.commit(emitted, verdict.accepted)                             # 5 go on from the accepted state
        for drafter in reply.drafters:
            drafter.observe(emitted)
        if first:
            metrics.first_token()
        now = time.perf_counter()
        round_ = Round(
            draft.origin if draft.tokens else "target", draft.tokens, draft.confidence,
            read if read <= verdict.accepted else len(draft), verdict.accepted, tuple(emitted), context,
            draft.match_length, reply.policy.parked, drafted - started, scored - drafted, sampled - scored, now - started,
            plan.expected_seconds, plan.reason, reply.costs.verify(1, context) if reply.costs else None,
            ended=read > len(emitted),
        )
        if not first:
            reply.policy.observe(Outcome(
                round_.origin, rows, context, len(emitted), verdict.kept, draft.confidence,
                guess[1] if guess else 0, _guess_kept(guess, verdict, block) if round_.origin != "ngram" else None,
                now - started, now - drafted, ease,
            ))
        metrics.add(round_, decoding=not first)
        reply.trace.write(metrics.rounds, round_, [self._show(t) for t in emitted], reply.policy.state)
        if text:
            yield TextDelta(text, *reply.attribution.take(len(text)))
        yield RoundDone(round_, reply.policy.state, reply.policy.action)
        if not first:
            metrics.decode_seconds += time.perf_counter() - started
            metrics.native_seconds += native_seconds() - native

    # ---- the stages

    def _plan(self, reply: Reply, guess: tuple[TokenId, int] | None) -> Plan:
        remaining = reply.request.max_tokens - len(reply.tokens)
        limit = min(self._session.room() - 1, remaining - 1, reply.max_block - 1)
        return reply.policy.choose(Situation(
            len(self._session.tokens), limit, remaining, guess[1] if guess else 0,
            # A seeded reply must not come out otherwise because an earlier one has warmed the draft's cache.
            reply.draft_model.lag(of_this_reply=reply.request.seed is not None) if reply.draft_model else None,
        ))

    def _compose(self, reply: Reply, plan: Plan) -> Draft:
        """Stage 1: the candidates and the distributions they were drawn from."""
        if plan.length <= 0:
            return Draft()
        if plan.origin == "ngram" and reply.lookup:
            return reply.lookup.propose(plan.length)
        if plan.origin == "model" and reply.draft_model:
            draft = reply.draft_model.propose(plan.length, reply.policy.go_on)
            if draft.tokens and all(q is None for q in draft.probs):
                n = reply.policy.check(draft.confidence)
                draft = Draft(draft.tokens[:n], draft.probs[:n], draft.confidence[:n], draft.origin)
            return draft
        return Draft()

    def _check(self, reply: Reply, draft: Draft) -> Verdict:
        """Stages 3 and 4: how much of the draft the target keeps, and its own token after that."""
        if reply.request.sampling.greedy:
            return self._check_greedy(reply, draft)
        targets = self._targets(reply, draft)
        uniforms = reply.rng.random(len(draft) + 1)
        if reply.request.rule == "match":
            accepted, token = accept_by_match(draft, targets, uniforms.tolist())
        else:
            accepted = accept_block(draft, targets, uniforms[:-1].tolist())
            token = resample(draft, targets, accepted, float(uniforms[-1]))
        block = [*draft.tokens[:accepted], token]
        for t in block:
            reply.chain.accept(t)
        kept = []
        for i in range(min(accepted + 1, len(draft))):
            q = draft.probs[i]
            kept.append(min(1.0, targets[i].prob(draft.tokens[i]) / (1.0 if q is None else q.prob(draft.tokens[i]))))
        return Verdict(accepted, token, tuple(kept), targets[0])

    def _check_greedy(self, reply: Reply, draft: Draft) -> Verdict:
        """At temperature 0 every distribution is one-hot: keep candidates while they are the target's choice."""
        for i in range(len(draft) + 1):
            token = reply.chain.greedy(self._session.logits(i))
            reply.chain.accept(token)
            if i == len(draft) or token != draft.tokens[i]:
                return Verdict(i, token, (1.0,) * i + (0.0,) * (i < len(draft)), None)
        raise AssertionError("unreachable")

    def _targets(self, reply: Reply, draft: Draft) -> list[Distribution]:
        """The target's distribution at each place of the block, with the candidates before it in the history.

        Behind a candidate the target gives 0 no place can be reached, and a grammar could not even follow; what
        stands there is never looked at.
        """
        chain = reply.chain.fork() if reply.chain.stateful and draft.tokens else reply.chain
        targets: list[Distribution] = []
        try:
            for i in range(len(draft) + 1):
                targets.append(chain.distribution(self._session.logits(i)))
                if i < len(draft):
                    if targets[i].prob(draft.tokens[i]) == 0:
                        targets += [Distribution.one_hot(draft.tokens[i])] * (len(draft) - i)
                        break
                    if chain is not reply.chain:
                        chain.accept(draft.tokens[i])
        finally:
            if chain is not reply.chain:
                chain.close()
        return targets

    def _emit(self, reply: Reply, block: list[TokenId], origins: list[Origin]) -> tuple[list[TokenId], int, str]:
        """The tokens of the block that belong to the reply, how many were read to its end, and the text they release;
        sets reply.reason at its end."""
        emitted: list[TokenId] = []
        released = []
        read = 0
        for token, origin in zip(block, origins, strict=True):
            read += 1
            if self._model.is_end(token):
                reply.reason = "stop"
                break
            emitted.append(token)
            before = reply.stream.characters
            released.append(reply.stream.push([self._model.piece(token)]))
            reply.attribution.add(origin, reply.stream.characters - before)
            if reply.stream.stopped:
                reply.reason = "stop"
                break
        reply.tokens += emitted
        text = "".join(released)
        reply.text += text
        if reply.reason is None:
            if len(reply.tokens) >= reply.request.max_tokens:
                reply.reason = "length"
            elif self._session.room() <= len(emitted):
                reply.reason = "context"
        return emitted, read, text

    # ---- side looks

    def _ease(self) -> float:
        """The target's top probability at the first place of the block just scored, before any filter."""
        logits: NDArray[np.float32] = self._session.logits(0)
        return float(1 / np.exp(logits - logits.max()).sum())

    def _show(self, token: TokenId) -> str:
        return self._model.piece(token).decode("utf-8", errors="replace")


def _guess_kept(guess: tuple[TokenId, int] | None, verdict: Verdict, block: list[TokenId]) -> float | None:
    """What the lookup's guess for the first place was worth, in a round that did not use it."""
    if guess is None:
        return None
    return float(block[0] == guess[0]) if verdict.first is None else verdict.first.prob(guess[0])
