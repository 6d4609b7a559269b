"""Throughput with several replies at once: one engine process for each, which share the machine.

The same prompts are worked off by 1, 2, 4 ... processes, each taking the next prompt when it is free, first in the
baseline's mode and then in the other, in turns. What counts is all tokens over the time from the first request to the last
token, prompts included. Every process has the pair loaded, and gets its share of the CPU's cores as threads unless
`--threads` says otherwise: two that each use all cores would only wait for each other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import product
from queue import Empty, SimpleQueue
from statistics import median
from typing import Any

from app.bench.plan import PLAIN
from app.bench.pool import EngineKey, EnginePool
from app.bench.prompts import BenchPrompt
from app.bench.statistics import over, quantile
from engine import ChatMessage, EngineProcess, Finished, GenerationRequest, LoadFailed
from engine.energy import EnergyMeter


@dataclass(frozen=True, slots=True)
class Load:
    """What to run. `request` carries everything but messages and mode."""

    prompts: Sequence[BenchPrompt]
    """Their first turns are asked."""
    modes: Sequence[str]
    at_once: Sequence[int]
    repeats: int
    request: GenerationRequest
    key: EngineKey
    threads: int
    """Of the whole machine."""
    fixed_threads: bool = False
    """Each process uses `key.threads`, however many there are."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """All prompts once. Seconds from the first request to the last token."""

    at_once: int
    mode: str
    repeat: int
    threads: int
    completion_tokens: int
    seconds: float
    ttft_ms: float | None
    """Median over the prompts, from when a process took the prompt."""
    energy_joules: float | None
    tokens_per_second: float


def measure_load(pool: EnginePool, load: Load, stopped: Callable[[], bool]) -> Iterator[Throughput]:
    """Rows as they are measured; none of a pass that was stopped. Raises EngineError when an engine cannot be loaded."""
    for count in load.at_once:
        threads = load.key.threads if load.fixed_threads and load.key.threads else max(1, load.threads // count)
        engines = [pool[replace(load.key, threads=threads, copy=copy)] for copy in range(count)]
        if not all(engine.alive for engine in engines):  # each that was loaded took the room of an earlier one
            raise LoadFailed(f"memory does not hold {count} engines at once; leave {count} out of --at-once")
        for repeat, mode in product(range(load.repeats), load.modes):
            if stopped():
                return
            row = _pass(engines, load, mode, repeat, threads, stopped)
            if row is None:
                return
            yield row
        pool.close()  # the next number has other threads


def load_summary(rows: Sequence[Throughput]) -> list[dict[str, Any]]:
    """One entry for each number and mode: median throughput, and how many times plain's and one reply's that is."""
    groups: dict[tuple[int, str], list[Throughput]] = {}
    for row in rows:
        groups.setdefault((row.at_once, row.mode), []).append(row)
    speed = {key: median(row.tokens_per_second for row in group) for key, group in groups.items()}
    least = min((count for count, _ in groups), default=1)
    return [
        {
            "at_once": count, "mode": mode, "threads": group[0].threads, "tokens_per_second": speed[count, mode],
            "low": min(row.tokens_per_second for row in group), "high": max(row.tokens_per_second for row in group),
            "times_plain": over(speed[count, mode], speed.get((count, PLAIN))),
            "times_fewest": over(speed[count, mode], speed.get((least, mode))),
            "ttft_ms": quantile((row.ttft_ms for row in group), 0.5),
            "joules_per_token": _per_token(group),
        }
        for (count, mode), group in groups.items()
    ]


def as_json(rows: Sequence[Throughput]) -> dict[str, Any] | None:
    """The part of a result file; None without rows."""
    return {"summary": load_summary(rows), "rows": [asdict(row) for row in rows]} if rows else None


def _pass(
    engines: Sequence[EngineProcess], load: Load, mode: str, repeat: int, threads: int, stopped: Callable[[], bool]
) -> Throughput | None:
    waiting: SimpleQueue[BenchPrompt] = SimpleQueue()
    for prompt in load.prompts:
        waiting.put(prompt)
    for engine in engines:
        engine.forget()
    begin = threading.Barrier(len(engines))

    def work(engine: EngineProcess) -> list[Finished]:
        done: list[Finished] = []
        begin.wait()
        while not stopped():
            try:
                prompt = waiting.get_nowait()
            except Empty:
                return done
            engine.forget()
            request = replace(load.request, messages=(ChatMessage("user", prompt.turns[0]),), mode=mode)
            done += [event for event in engine.generate(request) if isinstance(event, Finished)]
        return done

    energy, started = EnergyMeter(), time.perf_counter()
    with ThreadPoolExecutor(len(engines)) as workers:
        finished = [reply for done in workers.map(work, engines) for reply in done]
    seconds = time.perf_counter() - started
    if stopped() or len(finished) < len(load.prompts):
        return None
    tokens = sum(reply.report["usage"]["completion_tokens"] for reply in finished)
    joules = energy.joules()
    return Throughput(
        len(engines), mode, repeat, threads, tokens, seconds,
        quantile((reply.report["timings"]["ttft_ms"] for reply in finished), 0.5),
        sum(joules.values()) if joules else None, tokens / seconds,
    )


def _per_token(rows: Sequence[Throughput]) -> float | None:
    known = [(row.energy_joules, row.completion_tokens) for row in rows if row.energy_joules is not None]
    return over(sum(joules for joules, _ in known), sum(tokens for _, tokens in known)) if known else None
