"""One reply's numbers: a row of the result, made from the engine's report. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.bench.prompts import BenchPrompt
    from engine import Finished


@dataclass(frozen=True, slots=True)
class Measurement:
    """One reply. Rates are per second; None where something was not measured or makes no sense."""

    question_id: str
    category: str
    turn: int
    config: str
    """Name of the configuration."""
    repeat: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    finish_reason: str
    tokens_per_second: float | None
    """Of the tokens after the first; None for a reply too short to have a speed."""
    ttft_ms: float | None
    prefill_tps: float | None
    decode_seconds: float
    itl_ms: Mapping[str, float | None]
    """p50, p95 and p99 of the time between two tokens. A block's tokens come at once, which counts as 0."""
    outside_llama_share: float | None
    rounds: int
    drafted: int
    accepted: int
    tokens_per_round: float | None
    drafted_by_position: Sequence[int]
    accepted_by_position: Sequence[int]
    by_drafter: Mapping[str, Mapping[str, Any]]
    """`model` and `ngram`: rounds, drafted, accepted, acceptance_rate of each."""
    lengths: Sequence[int]
    """Tokens drafted in each round, in order."""
    time_ms: Mapping[str, float | None]
    """draft, target, sampling, other."""
    parked_rounds: int
    state: str
    energy_joules: float | None
    """Of the whole reply, prompt included, over all devices that count it."""
    peak_rss_bytes: int | None
    text_sha256: str

    @property
    def twin(self) -> tuple[str, int, int]:
        """What this reply shares with the reply of another configuration that it is compared with."""
        return (self.question_id, self.turn, self.repeat)

    @property
    def prompt(self) -> tuple[str, int]:
        """What its repeats share."""
        return (self.question_id, self.turn)


def measured(
    prompt: BenchPrompt, turn: int, config: str, repeat: int, finished: Finished, lengths: Sequence[int]
) -> Measurement:
    """The row of a reply that ended."""
    usage, timings, speculation = (finished.report[part] for part in ("usage", "timings", "speculation"))
    energy = finished.report.get("energy_joules")
    facts: dict[str, Any] = {
        name: speculation[name]
        for name in ("rounds", "drafted", "accepted", "tokens_per_round", "drafted_by_position", "accepted_by_position",
                     "by_drafter", "time_ms", "parked_rounds", "state")
    }
    return Measurement(
        question_id=prompt.question_id, category=prompt.category, turn=turn, config=config, repeat=repeat,
        prompt_tokens=usage["prompt_tokens"], cached_tokens=usage["cached_tokens"],
        completion_tokens=usage["completion_tokens"], finish_reason=finished.reason,
        tokens_per_second=timings["decode_tps"] or None, ttft_ms=timings["ttft_ms"], prefill_tps=timings["prefill_tps"],
        decode_seconds=timings["decode_seconds"], itl_ms=timings["itl_ms"],
        outside_llama_share=timings["outside_llama_share"], lengths=tuple(lengths),
        energy_joules=sum(energy.values()) if energy else None,
        peak_rss_bytes=finished.report["memory"]["peak_rss_bytes"],
        text_sha256=hashlib.sha256(finished.text.encode()).hexdigest(), **facts,
    )
