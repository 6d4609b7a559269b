"""The run: every configuration on every prompt, interleaved, each reply from an empty cache, until it is known well enough.

For one prompt, turn and repeat all configurations reply one after the other, in the opposite order every second repeat
(ABC CBA), so that heat and other load fall on all alike. Caches are dropped before each reply: a configuration must not
profit from the prompt that another has read. A second turn continues the baseline's reply in all of them, so that all read
the same history. A category whose ratios are known to the wanted precision is left alone; the run ends when all are, after
the most repeats, when the time is up (with the conversation under way), or when it is stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from app.bench.measurement import Measurement, measured
from app.bench.pace import Pace
from app.bench.plan import PLAIN, Configuration, in_turns
from app.bench.pool import EngineKey, EnginePool
from app.bench.prompts import BenchPrompt
from app.bench.statistics import grouped, paired, ratio_of
from engine import ChatMessage, ContextFull, EngineDied, EngineProcess, Finished, GenerationRequest, RoundDone

WARM_UP_TOKENS = 16
LEAST_REPEATS = 2
"""Without a second one there is no telling how precise the first is."""


@dataclass(frozen=True, slots=True)
class Run:
    """What to run. `request` carries everything but messages, mode, longest reply and seed."""

    prompts: Sequence[BenchPrompt]
    configs: Sequence[Configuration]
    engines: Mapping[str, EngineKey]
    """By the configuration's name."""
    request: GenerationRequest
    most_repeats: int = 5
    precision: float = 0.02
    """Half the width of the ratios' noise interval at which a category is done."""
    budget_seconds: float | None = None
    seed: int | None = None
    """Of the first repeat; the next ones count on."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Replies that could not be had, and why."""

    question_id: str
    config: str
    reason: str


@dataclass(slots=True)
class Progress:
    """How far a run is, for whoever watches it."""

    rows: list[Measurement] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    repeat: int = 0
    done: int = 0
    """Conversations of this pass over the prompts."""
    planned: int = 0
    seconds_left: float | None = None
    ended: str = ""
    """Why it ended: `precise`, `repeats`, `budget` or `stopped`; empty while it runs."""


def run(pool: EnginePool, plan: Run, progress: Progress, stopped: Callable[[], bool]) -> Iterator[Measurement | Skipped]:
    """Replies as they are measured; all of them are in `progress`, too. Rows that it holds already (of a run that is
    resumed) are not measured again: a conversation of which something is missing starts over."""
    order = [plan.prompts[index] for index in in_turns([prompt.category for prompt in plan.prompts])]
    _warm_up(pool, plan, stopped)
    started, pace = time.monotonic(), Pace()
    hopeless: set[str] = {skip.question_id for skip in progress.skipped}
    for repeat in range(plan.most_repeats):
        settled = settled_categories(progress.rows, plan, repeat)
        todo = [
            prompt for prompt in order
            if prompt.category not in settled and prompt.question_id not in hopeless
            and not _drop_unless_whole(progress.rows, prompt, plan.configs, repeat)
        ]
        progress.repeat, progress.done, progress.planned = repeat, 0, len(todo)
        for index, prompt in enumerate(todo):
            ahead = [p.category for p in todo[index:]]
            if repeat + 1 < min(LEAST_REPEATS, plan.most_repeats):
                ahead += [p.category for p in order]
            spent = time.monotonic() - started
            left = pace.left(ahead)
            if plan.budget_seconds is not None:
                if spent >= plan.budget_seconds:
                    progress.ended = "budget"
                    return
                left = None if left is None else min(left, plan.budget_seconds - spent)
            progress.seconds_left = left
            for result in _converse(pool, plan, prompt, repeat, stopped):
                if isinstance(result, Skipped):
                    hopeless.add(result.question_id)
                    progress.skipped.append(result)
                else:
                    progress.rows.append(result)
                yield result
            if stopped():
                progress.ended = "stopped"
                return
            pace.add(prompt.category, time.monotonic() - started - spent)
            progress.done += 1
    last = settled_categories(progress.rows, plan, plan.most_repeats)
    progress.ended = "precise" if last >= {prompt.category for prompt in plan.prompts} else "repeats"


def settled_categories(rows: Sequence[Measurement], plan: Run, repeats: int) -> set[str]:
    """The categories in which every ratio is known to the wanted precision after that many repeats."""
    if repeats < LEAST_REPEATS:
        return set()
    settled: set[str] = set()
    for category, group in grouped(rows, lambda row: row.category).items():
        by_config = grouped(group, lambda row: row.config)
        ratios = [
            ratio_of(paired(by_config.get(config.name, []), by_config.get(config.baseline, [])))
            for config in plan.configs if config.baseline
        ]
        if all(ratio.precision is not None and ratio.precision <= plan.precision for ratio in ratios):
            settled.add(category)
    return settled


def _drop_unless_whole(
    rows: list[Measurement], prompt: BenchPrompt, configs: Sequence[Configuration], repeat: int
) -> bool:
    """Whether `rows` has this conversation whole. What it has of a broken one is taken out."""
    there = [row for row in rows if row.question_id == prompt.question_id and row.repeat == repeat]
    if len(there) == len(prompt.turns) * len(configs):
        return True
    for row in there:
        rows.remove(row)
    return False


def _warm_up(pool: EnginePool, plan: Run, stopped: Callable[[], bool]) -> None:
    """Load every engine and let it write something: page faults and frequency steps belong to no configuration."""
    for config in plan.configs:
        if stopped():
            return
        message = ChatMessage("user", plan.prompts[0].turns[0])
        request = replace(plan.request, messages=(message,), mode=config.mode, max_tokens=WARM_UP_TOKENS)
        with suppress(ContextFull):  # told later, where that prompt's turn comes
            one_reply(pool[plan.engines[config.name]], pool, request, stopped)


def _converse(
    pool: EnginePool, plan: Run, prompt: BenchPrompt, repeat: int, stopped: Callable[[], bool]
) -> Iterator[Measurement | Skipped]:
    """All turns in all configurations. What cannot be had in one of them is had in none: there would be nothing to compare."""
    history: tuple[ChatMessage, ...] = ()
    seed = None if plan.seed is None else plan.seed + repeat
    configs = plan.configs if repeat % 2 == 0 else tuple(reversed(plan.configs))
    for turn, text in enumerate(prompt.turns):
        history = (*history, ChatMessage("user", text))
        answer = ""
        for config in configs:
            request = replace(plan.request, messages=history, mode=config.mode, max_tokens=config.max_tokens, seed=seed)
            try:
                reply = one_reply(pool[plan.engines[config.name]], pool, request, stopped)
            except (ContextFull, EngineDied) as error:
                yield Skipped(prompt.question_id, config.name, str(error))
                return
            if reply is None:
                return
            finished, lengths = reply
            if config.name == PLAIN:
                answer = finished.text
            yield measured(prompt, turn, config.name, repeat, finished, lengths)
        history = (*history, ChatMessage("assistant", answer))


def one_reply(
    engine: EngineProcess, pool: EnginePool, request: GenerationRequest, stopped: Callable[[], bool]
) -> tuple[Finished, list[int]] | None:
    """One whole reply and the tokens drafted in each of its rounds; None if it was stopped."""
    engine.forget()
    events = engine.generate(request)
    lengths: list[int] = []
    if stopped():  # before this, `generate` would have lowered the flag again
        pool.cancel()
    for event in events:
        if isinstance(event, RoundDone):
            lengths.append(len(event.round.candidates))
        if isinstance(event, Finished):
            return None if event.reason == "cancelled" else (event, lengths)
    return None
