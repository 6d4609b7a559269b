"""The run: every mode on every prompt, interleaved, each reply from an empty cache.

For one prompt, turn and repeat all modes run one after the other (ABAB...), so that heat and other load fall on all
alike. Caches are dropped before each reply: a mode must not profit from the prompt that another has read. A second
turn continues plain's reply in every mode, so that all of them read the same history.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from app.bench.prompts import BenchPrompt
from app.bench.statistics import PLAIN, Measurement
from engine import ChatMessage, ContextFull, Engine, Finished, GenerationRequest

WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. `request` carries everything but messages, mode and seed."""

    prompts: Sequence[BenchPrompt]
    modes: Sequence[str]
    repeats: int
    request: GenerationRequest
    seed: int | None = None

    @property
    def replies(self) -> int:
        """How many replies the whole run has."""
        return sum(len(prompt.turns) for prompt in self.prompts) * len(self.modes) * self.repeats


@dataclass(frozen=True, slots=True)
class Skipped:
    """Replies that could not be had, and why."""

    question_id: str
    replies: int
    reason: str


def run(engine: Engine, plan: Plan, stopped: Callable[[], bool]) -> Iterator[Measurement | Skipped]:
    """Measurements as they are made. Ends early, without the reply under way, once `stopped` is true."""
    first = plan.prompts[0]
    warm_up = replace(plan.request, messages=(ChatMessage("user", first.turns[0]),), mode=PLAIN, max_tokens=WARM_UP_TOKENS)
    with suppress(ContextFull):  # told below, where that prompt's turn comes
        _reply(engine, warm_up, stopped)  # page faults and frequency steps belong to no mode
    for prompt in plan.prompts:
        done = 0
        try:
            for row in _converse(engine, plan, prompt, stopped):
                done += 1
                yield row
        except ContextFull as error:
            yield Skipped(prompt.question_id, len(prompt.turns) * len(plan.modes) * plan.repeats - done, str(error))
        if stopped():
            return


def _converse(engine: Engine, plan: Plan, prompt: BenchPrompt, stopped: Callable[[], bool]) -> Iterator[Measurement]:
    for repeat in range(plan.repeats):
        history: tuple[ChatMessage, ...] = ()
        seed = None if plan.seed is None else plan.seed + repeat
        for turn, text in enumerate(prompt.turns):
            history = (*history, ChatMessage("user", text))
            answers: dict[str, str] = {}
            for mode in plan.modes:
                finished = _reply(engine, replace(plan.request, messages=history, mode=mode, seed=seed), stopped)
                if finished is None:
                    return
                answers[mode] = finished.text
                yield _measured(prompt, turn, mode, repeat, finished)
            history = (*history, ChatMessage("assistant", answers[PLAIN]))


def _reply(engine: Engine, request: GenerationRequest, stopped: Callable[[], bool]) -> Finished | None:
    """One whole reply, or None if it was stopped."""
    engine.forget()
    for event in engine.generate(request):
        if stopped():
            engine.cancel()
        if isinstance(event, Finished):
            return None if event.reason == "cancelled" else event
    return None


def _measured(prompt: BenchPrompt, turn: int, mode: str, repeat: int, finished: Finished) -> Measurement:
    usage, timings, speculation = (finished.report[part] for part in ("usage", "timings", "speculation"))
    rounds: int = speculation["rounds"]
    facts: dict[str, Any] = {name: speculation[name] for name in ("drafted", "accepted", "tokens_per_round", "parked_rounds", "state")}
    return Measurement(
        question_id=prompt.question_id,
        category=prompt.category,
        turn=turn,
        mode=mode,
        repeat=repeat,
        **usage,
        finish_reason=finished.reason,
        tokens_per_second=timings["decode_tps"] or None,
        ttft_ms=timings["ttft_ms"],
        prefill_tps=timings["prefill_tps"],
        decode_seconds=timings["decode_seconds"],
        outside_llama_share=timings["outside_llama_share"],
        rounds=rounds,
        text_sha256=hashlib.sha256(finished.text.encode()).hexdigest(),
        **facts,
    )
