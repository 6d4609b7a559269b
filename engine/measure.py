"""What a model, alone and with a draft, costs on this machine and how well it predicts text, in a process of its own.

For comparing two models or two quantisations: each is loaded alone, so that its peak memory is its own. The time of a
decode is the best of a few with an almost empty cache, as whatever else runs only adds to it; the log-likelihood is the
mean over given texts, with nothing sampled, so that two runs of one file agree.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from engine.child import child, redirect_output
from engine.errors import EngineError, LoadCancelled, LoadFailed, WorkCancelled
from engine.likelihood import log_likelihood
from engine.values import ChatMessage, Finished, GenerationRequest, LoadConfig

if TYPE_CHECKING:
    from engine.engine import Engine
    from engine.llama.context import Context

BLOCK = 8
"""Rows of a block: a usual length of a verification."""
DRAFTED = 4
"""Candidates of each round when acceptance is measured."""
REPEATS = 7


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one target and its draft. None: not measured, or there is no draft."""

    peak_bytes: int | None
    """Peak resident memory of the process, with both models loaded and a reply written."""
    row_seconds: float
    """One token through the target."""
    block_seconds: float
    """BLOCK tokens through the target at once."""
    plain_rate: float
    """Tokens a second without a draft."""
    drafted_rate: float | None
    acceptance: float | None
    """Share of the draft's candidates that the target kept, at DRAFTED a round and temperature 0."""
    token_loglik: float
    """Mean log-likelihood of the texts' tokens, in nats."""
    byte_loglik: float
    """The same for each byte of text, which also compares models with different vocabularies."""
    notices: tuple[str, ...] = ()


def measure(
    config: LoadConfig, prompts: Sequence[str], texts: Sequence[str], *, max_tokens: int = 32,
    on_progress: Callable[[float], None] = lambda _: None, cancelled: Callable[[], bool] = lambda: False,
) -> Measured:
    """Load `config`'s models, reply to each of `prompts` with and without the draft, and score `texts`.

    Raises EngineError as loading does, EngineDied, and LoadCancelled soon after `cancelled` turns true.
    """
    try:
        with child("paceline measure", _work, config, tuple(prompts), tuple(texts), max_tokens) as process:
            for kind, value in process.reports(cancelled):
                if kind == "progress":
                    on_progress(value)
                elif kind == "failed":
                    raise LoadFailed(str(value))
                else:
                    break
    except WorkCancelled:
        raise LoadCancelled("measuring was cancelled") from None
    return Measured(**value)


# ---- in the child


def _work(connection: Connection, config: LoadConfig, prompts: Sequence[str], texts: Sequence[str], max_tokens: int) -> None:
    from engine.engine import Engine

    steps = 2 + 2 * len(prompts) + len(texts)

    def done(step: int) -> None:
        connection.send(("progress", step / steps))

    redirect_output(config.log_file).close()
    try:
        with Engine(config) as engine:
            done(1)
            measured = _measure(engine, prompts, texts, max_tokens, lambda step: done(step + 1))
    except EngineError as error:
        connection.send(("failed", str(error)))
    else:
        connection.send(("done", {field.name: getattr(measured, field.name) for field in fields(measured)}))


def _measure(
    engine: Engine, prompts: Sequence[str], texts: Sequence[str], max_tokens: int, done: Callable[[int], None]
) -> Measured:
    plain: list[dict[str, Any]] = []
    drafted: list[dict[str, Any]] = []
    step = 0
    has_draft = engine.describe()["draft"] is not None
    for prompt in prompts:
        for mode, reports in (("plain", plain), (f"fixed:{DRAFTED}", drafted)):
            if mode == "plain" or has_draft:
                reports.append(_reply(engine, prompt, mode, max_tokens))
            done(step := step + 1)
    peak = plain[-1]["memory"]["peak_rss_bytes"] if not drafted else drafted[-1]["memory"]["peak_rss_bytes"]
    engine.forget()
    context, window = engine.cache.context, engine.max_block
    row, block = (_decode_seconds(context, rows) for rows in (1, min(BLOCK, window)))
    done(step := step + 1)
    scores = []
    for text in texts:
        scores.append(_score(engine, context, window, text))
        done(step := step + 1)
    context.clear()
    total = sum(score[0] for score in scores)
    candidates = sum(report["speculation"]["drafted"] for report in drafted)
    kept = sum(report["speculation"]["accepted"] for report in drafted)
    return Measured(
        peak_bytes=peak, row_seconds=row, block_seconds=block, plain_rate=_rate(plain),
        drafted_rate=_rate(drafted) if drafted else None, acceptance=kept / candidates if candidates else None,
        token_loglik=total / max(sum(score[1] for score in scores), 1),
        byte_loglik=total / max(sum(len(text.encode()) for text in texts), 1), notices=engine.notices,
    )


def _reply(engine: Engine, prompt: str, mode: str, max_tokens: int) -> dict[str, Any]:
    """The report of one greedy reply that started cold."""
    from engine.sampling import SamplingParams

    engine.forget()
    request = GenerationRequest(
        messages=(ChatMessage("user", prompt),), sampling=SamplingParams(temperature=0.0), max_tokens=max_tokens, mode=mode
    )
    finished = [event for event in engine.generate(request) if isinstance(event, Finished)]
    return dict(finished[-1].report)


def _rate(reports: Sequence[dict[str, Any]]) -> float:
    rates = [report["timings"]["decode_tps"] for report in reports if report["timings"].get("decode_tps")]
    return statistics.median(rates) if rates else 0.0


def _decode_seconds(context: Context, rows: int) -> float:
    """Best time of a decode of `rows` rows, the first one not counted."""
    tokens = list(range(1, rows + 1))
    seconds = []
    for _ in range(REPEATS + 1):
        context.clear()
        started = time.perf_counter()
        context.decode(tokens, 0, rows)
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:])


def _score(engine: Engine, context: Context, window: int, text: str) -> tuple[float, int]:
    """Log-likelihood of a text, and of how many tokens; as much of it as the cache holds, read `window` rows at a time."""
    model = engine.target
    start = [model.bos] if model.bos is not None and model.add_bos else []
    tokens = [*start, *model.encode(text, special=False)][: context.n_ctx]
    return log_likelihood(context, tokens, 1, window), max(len(tokens) - 1, 0)
