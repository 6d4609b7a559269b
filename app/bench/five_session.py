"""`bench five` put together: files, the run behind a bar, the judge, table and file. What was measured is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from app.bench import setup
from app.bench.five import (
    NEW_TOKENS,
    PROMPTS,
    PUBLISHED,
    PUBLISHED_NOTE,
    Continued,
    document,
    five_configurations,
    measure_five,
    summary,
)
from app.bench.manifest import manifest
from app.bench.plan import Configuration
from app.bench.pool import EnginePool
from app.bench.prompts import BenchPrompt
from app.bench.session import Saver, bar
from app.bench.tables import gigabytes, plain_table, text
from app.interrupt import Interrupt
from app.options import LoadChoices
from app.paths import Paths
from app.selection import NO_DRAFT
from app.terminal import FractionBar, print_table, say, write_out
from app.wiring import load_config
from engine import LoadCancelled, SamplingParams
from engine.likelihood import Continuation, likelihoods


def run_five(
    loading: LoadChoices, other: str | None, repeats: int, new_tokens: int, sampling: Mapping[str, Any], out: Path | None
) -> int:
    """Measure, and return the exit code. Raises AppError, ModelsError, EngineError, Interrupted."""
    params, paths = SamplingParams(**sampling), Paths.find()
    configs = five_configurations(other, with_draft=loading.draft != NO_DRAFT)
    prepared = setup.prepare(configs, loading, paths)
    questions = [BenchPrompt(str(number), "five", (prompt,)) for number, prompt in enumerate(PROMPTS)]
    settings = {"new_tokens": new_tokens, "repeats": repeats, "loading": asdict(loading), "sampling": asdict(params)}
    made_with = manifest(prepared.models(configs), questions, settings)
    done: list[Continued] = []
    judge: Path | None = None
    saver = Saver(out, lambda: document(made_with, configs, done, str(judge) if judge else None))
    with Interrupt() as interrupt:
        try:
            with EnginePool(setup.loader(prepared, loading, paths, interrupt), setup.device_bytes()) as pool, bar() as shown:
                interrupt.hook = pool.cancel
                task = shown.add_task("continuing", total=len(configs) * len(PROMPTS) * repeats)

                def tick() -> None:
                    shown.advance(task)
                    saver.now_and_then()

                measure_five(pool, configs, prepared.engines, params, repeats, new_tokens, done, lambda: interrupt.seen, tick)
            interrupt.hook = None
            if done and not interrupt.seen:
                targets = [prepared.engines[config.name].target for config in configs]
                judge = max(targets, key=lambda path: path.stat().st_size)  # the most precise; of equals the target itself
                key = next(key for key in prepared.engines.values() if key.target == judge)
                config = replace(load_config(prepared.pairs[key], loading, paths, say), draft=None)
                done[:] = _judged(done, lambda texts: _likelihoods(config, texts, interrupt))
        finally:
            interrupt.hook = None
            if done:  # or it would replace an earlier result by nothing
                saver.save()
            _show(done, configs, prepared, judge)
        if interrupt.seen:
            say(f"stopped: {len(done)} replies were measured")
            return interrupt.exit_code
    return int(not saver.works)


def _judged(done: Sequence[Continued], score: Callable[[list[Continuation]], list[float | None]]) -> list[Continued]:
    """With the likelihood of every text; one that was written several times is read once."""
    texts = list(dict.fromkeys((reply.prompt, reply.text) for reply in done))
    scores = dict(zip(texts, score([Continuation(PROMPTS[number], text) for number, text in texts]), strict=True))
    return [replace(reply, log_likelihood=scores[reply.prompt, reply.text]) for reply in done]


def _likelihoods(config: Any, texts: list[Continuation], interrupt: Interrupt) -> list[float | None]:
    with FractionBar() as bar_:
        try:
            found = likelihoods(
                config, texts, on_progress=lambda fraction: bar_.show("reading the outputs", fraction), cancelled=lambda: interrupt.seen
            )
        except LoadCancelled:
            return [None] * len(texts)
    return [one.total / one.tokens if one.tokens else None for one in found]


def _show(
    done: Sequence[Continued], configs: Sequence[Configuration], prepared: setup.Prepared, judge: Path | None
) -> None:
    facts = summary(done, configs)
    if not facts:
        return
    files = {config.name: prepared.engines[config.name] for config in configs}
    rows = [
        (
            "+".join(path.stem for path in (files[entry["name"]].target, files[entry["name"]].draft) if path), entry["name"].partition("@")[0],
            text(entry["latency_seconds"], ".2f", " s"), text(entry["tokens_per_second"], ".2f"), text(entry["completion_tokens"], ".0f"),
            gigabytes(entry["memory_bytes"]), text(entry["acceptance_rate"], ".0%"), text(entry["log_likelihood"], ".4f"),
            text(entry["joules_per_token"], ".2f"),
        )
        for entry in facts
    ]
    rows += [
        (f"{entry['name']} (published)", "", text(entry["latency_seconds"], ".1f", " s"), text(entry["tokens_per_second"], ".2f"),
         str(NEW_TOKENS) if entry["latency_seconds"] else "", gigabytes(entry["memory_bytes"]), "", "", "")
        for entry in PUBLISHED
    ]
    numbers = ("latency", "tokens/s", "tokens", "memory", "kept", "log-likelihood", "J/token")
    print_table(plain_table(("models", "mode"), numbers, rows))
    write_out(f"{PUBLISHED_NOTE}\n")
    if judge is not None:
        write_out(f"log-likelihood: mean for a token of the output, in nats, under {judge.name}\n")
