"""`bench five`: five well-known prompts continued as raw text by 200 tokens, for the target alone and with its draft, and
for another quantisation of the target: latency, speed, memory, and how likely one model holds the outputs to be.

The prompts and the published figures are those of a write-up on speculative decoding with Gemma 2 (2B drafting for 9B, on
one data-centre GPU). They stand beside ours for orientation: another machine, other models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from app.bench.plan import PLAIN, Configuration
from app.bench.pool import EngineKey, EnginePool
from app.bench.runner import one_reply
from app.bench.statistics import over
from engine import GenerationRequest, SamplingParams

KIND, FORMAT = "paceline bench five", 1
PROMPTS = (
    "The future of artificial intelligence is ",
    "Machine learning is transforming the world by ",
    "Natural language processing enables computers to understand ",
    "Generative models like GPT-3 can create ",
    "AI ethics and fairness are important considerations for ",
)
NEW_TOKENS = 200
PUBLISHED: tuple[dict[str, Any], ...] = (
    {"name": "Gemma 2 9B alone", "latency_seconds": 25.1, "tokens_per_second": 7.97, "memory_bytes": None},
    {"name": "Gemma 2 9B with 2B drafting", "latency_seconds": 15.8, "tokens_per_second": 12.68, "memory_bytes": None},
    {"name": "Gemma 2 9B, full precision", "latency_seconds": None, "tokens_per_second": None, "memory_bytes": 26_500_000_000},
    {"name": "Gemma 2 9B, 4 bits", "latency_seconds": None, "tokens_per_second": None, "memory_bytes": 9_000_000_000},
)
PUBLISHED_NOTE = "published: one GPU, other models, another machine"


@dataclass(frozen=True, slots=True)
class Continued:
    """One prompt continued once. Latency from the request to the last token, in seconds."""

    config: str
    prompt: int
    repeat: int
    completion_tokens: int
    latency_seconds: float
    ttft_ms: float
    peak_rss_bytes: int | None
    energy_joules: float | None
    acceptance_rate: float | None
    text: str
    log_likelihood: float | None = None
    """Mean for a token, in nats, under the judge; filled in at the end."""


def five_configurations(other: str | None, *, with_draft: bool) -> tuple[Configuration, ...]:
    """The target alone and the pair, and the same of the other target."""
    modes = (PLAIN, "auto") if with_draft else (PLAIN,)
    base = tuple(Configuration(mode, max_tokens=NEW_TOKENS) for mode in modes)
    if other is None:
        return base
    return (*base, *(Configuration(mode, other, max_tokens=NEW_TOKENS, varied="other-target") for mode in modes))


def measure_five(
    pool: EnginePool, configs: Sequence[Configuration], engines: Mapping[str, EngineKey], sampling: SamplingParams,
    repeats: int, new_tokens: int, done: list[Continued], stopped: Callable[[], bool], tick: Callable[[], None],
) -> None:
    """Fill `done`: every prompt in every configuration in turns, in the opposite order every second repeat; each reply starts
    cold. The first reply of every configuration is made twice and counts once: the first time warms it up."""
    warm: set[str] = set()
    for repeat in range(repeats):
        for number, prompt in enumerate(PROMPTS):
            for config in configs if repeat % 2 == 0 else reversed(configs):
                request = GenerationRequest(prompt=prompt, sampling=sampling, max_tokens=new_tokens, mode=config.mode)
                engine = pool[engines[config.name]]
                if config.name not in warm:
                    one_reply(engine, pool, request, stopped)
                    warm.add(config.name)
                reply = one_reply(engine, pool, request, stopped)
                if reply is None:
                    return
                report, energy = reply[0].report, reply[0].report.get("energy_joules")
                timings = report["timings"]
                done.append(Continued(
                    config.name, number, repeat, report["usage"]["completion_tokens"],
                    (timings["ttft_ms"] or 0.0) / 1000 + timings["decode_seconds"], timings["ttft_ms"],
                    report["memory"]["peak_rss_bytes"], sum(energy.values()) if energy else None,
                    report["speculation"]["acceptance_rate"], reply[0].text,
                ))
                tick()


def summary(done: Sequence[Continued], configs: Sequence[Configuration]) -> list[dict[str, Any]]:
    """One entry for each configuration: means over the prompts, of each the median of its repeats."""
    found = []
    for config in configs:
        mine = [reply for reply in done if reply.config == config.name]
        by_prompt = [[reply for reply in mine if reply.prompt == number] for number in range(len(PROMPTS))]
        asked = [replies for replies in by_prompt if replies]
        if not asked:
            continue
        latency = fmean(median(reply.latency_seconds for reply in replies) for replies in asked)
        tokens = fmean(median(reply.completion_tokens for reply in replies) for replies in asked)
        judged = [reply for reply in mine if reply.log_likelihood is not None]
        accepted = [reply.acceptance_rate for reply in mine if reply.acceptance_rate is not None]
        energy = [reply.energy_joules for reply in mine if reply.energy_joules is not None]
        found.append({
            "name": config.name, "replies": len(mine), "latency_seconds": latency, "completion_tokens": tokens,
            "tokens_per_second": over(tokens, latency), "ttft_ms": median(reply.ttft_ms for reply in mine),
            "memory_bytes": max((reply.peak_rss_bytes for reply in mine if reply.peak_rss_bytes), default=None),
            "joules_per_token": over(sum(energy), sum(r.completion_tokens for r in mine if r.energy_joules is not None)) if energy else None,
            "acceptance_rate": fmean(accepted) if accepted else None,
            "log_likelihood": fmean(reply.log_likelihood or 0.0 for reply in judged) if judged else None,
        })
    return found


def document(
    manifest: Mapping[str, Any], configs: Sequence[Configuration], done: Sequence[Continued], judge: str | None
) -> dict[str, Any]:
    """Everything, as JSON values."""
    return {
        "kind": KIND, "format": FORMAT, "manifest": dict(manifest), "judge": judge,
        "reading": "latency: from the request to the last token, mean over the prompts of the median over repeats; tokens/s: tokens over latency",
        "summary": summary(done, configs), "published": [dict(entry) for entry in PUBLISHED], "published_note": PUBLISHED_NOTE,
        "replies": [asdict(reply) for reply in done],
    }
