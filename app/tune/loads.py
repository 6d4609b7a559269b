"""Ways of running that need a load of their own (layers on a GPU, another draft), timed by whole replies.

Both ways are loaded in turns, a few times each, in a process of its own; every prompt's reply gives one pair of times a
token, reading the prompt included. Loads cost seconds, so this is for settings that cannot be tried beside each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from app.tune.decision import Gain, gain_of, pairs_needed
from app.verify.prompts import built_in_prompts
from engine import (
    ChatMessage,
    EngineProcess,
    Finished,
    GenerationRequest,
    LoadCancelled,
    LoadConfig,
    LoadProgress,
    SamplingParams,
)

PROMPTS, TOKENS, WARM_UP_TOKENS = 4, 48, 8
MOST_ROUNDS = 6


@dataclass(frozen=True, slots=True)
class Replies:
    """Seconds a token of each prompt's reply, and what it all took, the load included."""

    seconds: list[float]
    took: float


def replies_of(config: LoadConfig, cancelled: Callable[[], bool]) -> Replies:
    """One load. Raises LoadFailed, EngineDied, and LoadCancelled soon after `cancelled` turns true."""
    started = time.perf_counter()

    def go_on(_: LoadProgress) -> bool:
        return not cancelled()

    found = []
    with EngineProcess(config, go_on) as engine:
        prompts = built_in_prompts()[:PROMPTS]
        for text, tokens in ((prompts[0].turns[0], WARM_UP_TOKENS), *((prompt.turns[0], TOKENS) for prompt in prompts)):
            engine.forget()
            request = GenerationRequest(
                messages=(ChatMessage("user", text),), sampling=SamplingParams(temperature=0.0), max_tokens=tokens
            )
            begun = time.perf_counter()
            for event in engine.generate(request):
                if cancelled():
                    raise LoadCancelled("measuring was cancelled")
                if isinstance(event, Finished):
                    written = max(1, event.report["usage"]["completion_tokens"])
                    found.append((time.perf_counter() - begun) / written)
    return Replies(found[1:], time.perf_counter() - started)


def compare(
    now: LoadConfig, tried: LoadConfig, confidence: float, seconds: float, cancelled: Callable[[], bool],
    tell: Callable[[str], None], replies: Callable[[LoadConfig, Callable[[], bool]], Replies] = replies_of,
) -> Gain | None:
    """Both ways in turns for about `seconds`; None where that is too short. The number of turns is settled by what a first
    pair of loads takes, which is not counted. Raises as `replies_of`."""
    tell("loading")
    first = [replies(config, cancelled) for config in (now, tried)]
    each = sum(one.took for one in first)
    rounds = min(MOST_ROUNDS, int((seconds - each) / each)) if each > 0 else MOST_ROUNDS
    if rounds * PROMPTS < pairs_needed(confidence):
        return None
    times: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(rounds):
        tell(f"turn {turn + 1} of {rounds}")
        for other in (False, True) if turn % 2 == 0 else (True, False):
            times[other] += replies(tried if other else now, cancelled).seconds
    return gain_of(times[False], times[True], confidence)
