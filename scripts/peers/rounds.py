"""Rounds of replies: everybody continues the same text, one after the other, in the opposite order every second repeat.

As many contenders as memory holds are up at once; one that waits uses no CPU time (`idle_share` measures it). The rest
comes in further groups, each together with the three that everything is compared with, so that a ratio is always one of
replies made moments apart.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median

import psutil

from app.bench.statistics import Ratio, ratio_of
from scripts.peers.contenders import (
    OUR_PLAIN,
    OURS,
    THEIR_PLAIN,
    Answer,
    Contender,
    PeerFailed,
    Runner,
    Setting,
    Task,
)

ANCHORS = (OUR_PLAIN, OURS, THEIR_PLAIN)
SPARE = 2 << 30
GROWTH = 1.7
"""Memory of a process over the size of its files: weights are mapped and shared, their repacked copies and caches are not."""
WARM_UP = Task("Once upon a time", 0.0, 8, 1)


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt, rendered."""

    question_id: str
    category: str
    prompt: str


@dataclass(frozen=True, slots=True)
class Row:
    """One reply of one contender."""

    contender: str
    question_id: str
    category: str
    temperature: float
    repeat: int
    group: int
    answer: Answer

    @property
    def twin(self) -> tuple[str, float, int, int]:
        """What it shares with the replies it is compared with."""
        return (self.question_id, self.temperature, self.repeat, self.group)

    def as_json(self) -> dict[str, object]:
        row = asdict(self)
        return {**{name: value for name, value in row.items() if name != "answer"}, **row["answer"]}


Start = Callable[[Contender], Runner]


def groups(contenders: Sequence[Contender], setting: Setting, free_bytes: int) -> list[list[Contender]]:
    """Contenders that are up together: the anchors, and as many others as fit beside them (one at least)."""
    anchors = [c for c in contenders if c.name in ANCHORS]
    others = [c for c in contenders if c.name not in ANCHORS]
    room = free_bytes - SPARE - sum(_bytes(c, setting) for c in anchors)
    found: list[list[Contender]] = []
    left = 0.0
    for contender in others:
        if not found or left < _bytes(contender, setting):
            found.append([])
            left = room
        found[-1].append(contender)
        left -= _bytes(contender, setting)
    return [[*anchors, *group] for group in found] or [anchors]


def run(
    contenders: Sequence[Contender], questions: Sequence[Question], temperatures: Sequence[float], repeats: int, max_tokens: int,
    setting: Setting, start: Start, told: Callable[[str], None], enough: Callable[[], bool] = lambda: False,
) -> Iterator[Row]:
    """Rows as they are made. A contender that cannot be started or fails is told and left out from there on. Ends before the
    next prompt once `enough` is true."""
    free = psutil.virtual_memory().available
    for number, group in enumerate(groups(contenders, setting, free)):
        up: dict[str, Runner] = {}
        try:
            for contender in group:
                try:
                    up[contender.name] = start(contender)
                    up[contender.name].reply(WARM_UP)
                except PeerFailed as error:
                    told(f"{contender.name} is left out: {error}")
                    up.pop(contender.name, None)
            for repeat in range(repeats):
                for question in questions:
                    for temperature in temperatures:
                        if enough():
                            return
                        yield from _one(up, question, temperature, repeat, number, max_tokens, told)
        finally:
            for runner in up.values():
                runner.close()


def _one(
    up: dict[str, Runner], question: Question, temperature: float, repeat: int, group: int, max_tokens: int, told: Callable[[str], None]
) -> Iterator[Row]:
    names = list(up) if repeat % 2 == 0 else list(reversed(up))
    read: dict[str, int] = {}
    for name in names:
        try:
            answer = up[name].reply(Task(question.prompt, temperature, max_tokens, 1 + repeat))
        except PeerFailed as error:
            told(f"{name} is left out from here on: {error}")
            up.pop(name).close()
            continue
        read[name] = answer.prompt_tokens
        yield Row(name, question.question_id, question.category, temperature, repeat, group, answer)
    if len(set(read.values())) > 1:
        told(f"{question.question_id}: not all read the same prompt: {read}")


def compare(rows: Sequence[Row], left: str, right: str) -> Ratio:
    """How many times as fast `left` is as `right`, over what both continued in the same group."""
    base = {row.twin: row.answer.tokens_per_second for row in rows if row.contender == right}
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in rows:
        if row.contender == left and row.answer.tokens_per_second and (other := base.get(row.twin)):
            found[row.question_id, int(1000 * row.temperature)].append(row.answer.tokens_per_second / other)
    return ratio_of(found)


def speed(rows: Sequence[Row], name: str) -> float | None:
    """Median tokens/s."""
    known = [row.answer.tokens_per_second for row in rows if row.contender == name and row.answer.tokens_per_second]
    return median(known) if known else None


def kept(rows: Sequence[Row], name: str) -> float | None:
    """Share of the drafted tokens that were kept."""
    drafted = sum(row.answer.drafted for row in rows if row.contender == name)
    return sum(row.answer.accepted for row in rows if row.contender == name) / drafted if drafted else None


def same_text(rows: Sequence[Row], name: str) -> float | None:
    """Share of the texts that are llama-server's plain ones: means something at temperature 0 only, where rounding can part
    them as well."""
    plain = {row.twin: row.answer.text_sha256 for row in rows if row.contender == THEIR_PLAIN}
    same = [row.answer.text_sha256 == plain[row.twin] for row in rows if row.contender == name and row.twin in plain]
    return sum(same) / len(same) if same else None


def idle_share(pids: Sequence[int], seconds: float = 3.0) -> float:
    """CPU time these processes use while nobody asks them anything, as a share of one core."""
    processes = [psutil.Process(pid) for pid in pids]
    before = [process.cpu_times() for process in processes]
    time.sleep(seconds)
    after = [process.cpu_times() for process in processes]
    return sum(b.user + b.system - a.user - a.system for a, b in zip(before, after, strict=True)) / seconds


def _bytes(contender: Contender, setting: Setting) -> float:
    return GROWTH * (setting.target.stat().st_size + (setting.draft.stat().st_size if contender.uses_draft else 0))
