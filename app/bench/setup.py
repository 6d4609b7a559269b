"""From what the user asked for to what can be run: files for every configuration, loaded alike, and who loads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.bench.manifest import file_facts
from app.bench.plan import Configuration, uses_draft
from app.bench.pool import EngineKey
from app.engine_build import ask_engine_build
from app.errors import Interrupted
from app.interrupt import Interrupt
from app.local_pair import LocalPair
from app.options import LoadChoices
from app.paths import Paths
from app.selection import NO_DRAFT
from app.terminal import FractionBar, say
from app.wiring import LOADING, load_config, local_pair
from engine import EngineProcess, LoadCancelled, LoadProgress

KV_TYPES = ("f16", "q8_0", "q4_0")


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a run can load."""

    engines: Mapping[str, EngineKey]
    """By the configuration's name."""
    pairs: Mapping[EngineKey, LocalPair]

    def models(self, configs: Sequence[Configuration]) -> dict[str, dict[str, Any]]:
        """Facts of every file, by the part it plays: `target`, `draft`, `target=NAME`, `draft=NAME`."""
        found: dict[str, dict[str, Any]] = {}
        hashes: dict[str, dict[str, Any]] = {}
        for config in configs:
            pair = self.pairs[self.engines[config.name]]
            variable, _, _ = config.varied.partition("=")
            for role, model in (("target", pair.target), ("draft", pair.draft)):
                part = config.varied if variable == role else role
                if model is not None and part not in found:
                    path = str(model.path)
                    hashes[path] = hashes.get(path) or file_facts(model.path, model.sha256)
                    found[part] = hashes[path]
        return found


def prepare(configs: Sequence[Configuration], choices: LoadChoices, paths: Paths) -> Prepared:
    """Find (and fetch, if that is wanted) the files of all configurations. All get the context, the KV type and the batch of
    the one that has to do with least, and none what `tune` found for one of them: speeds are compared of equals. Raises AppError or ModelsError."""
    found: dict[tuple[str | None, str | None], LocalPair] = {}
    chosen: dict[str, tuple[str | None, str | None]] = {}
    for config in configs:
        draft = config.draft or choices.draft if uses_draft(config.mode) else NO_DRAFT
        names = chosen[config.name] = (config.target or choices.target, draft)
        if names not in found:
            found[names] = local_pair(replace(choices, target=names[0], draft=draft), paths, [config.mode], tuned=False)
    shared = shared_settings([pair.settings for pair in found.values()])
    engines, pairs = {}, {}
    for config in configs:
        pair = found[chosen[config.name]]
        batch = {"batch": config.batch} if config.batch else {}
        pair = replace(pair, settings={**pair.settings, **shared, **batch})
        key = EngineKey(pair.target.path, pair.draft.path if pair.draft else None, config.batch, choices.threads)
        engines[config.name], pairs[key] = key, pair
    return Prepared(engines, pairs)


def shared_settings(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The strictest of what any of the pairs has to do with."""
    found: dict[str, Any] = {}
    for name in ("context", "batch"):
        if values := [one[name] for one in settings if name in one]:
            found[name] = min(values)
    if types := [one["kv_type"] for one in settings if "kv_type" in one]:
        found["kv_type"] = max(types, key=KV_TYPES.index)
    return found


def loader(prepared: Prepared, choices: LoadChoices, paths: Paths, interrupt: Interrupt) -> Callable[[EngineKey], EngineProcess]:
    """Loads what a key stands for, behind a bar. It raises Interrupted once Ctrl-C was pressed."""
    told: set[str] = set()

    def tell(line: str) -> None:
        """Once: every engine of a run has the same to say."""
        if line not in told:
            say(line)
        told.add(line)

    def load(key: EngineKey) -> EngineProcess:
        pair = prepared.pairs[replace(key, threads=choices.threads, copy=0)]
        with FractionBar() as bar:

            def on_progress(progress: LoadProgress) -> bool:
                bar.show(LOADING[progress.stage], progress.fraction)
                return not interrupt.seen

            try:
                config = load_config(pair, replace(choices, threads=key.threads), paths, tell)
                engine = EngineProcess(config, on_progress)
            except LoadCancelled:
                raise Interrupted from None
        for notice in engine.notices:
            tell(notice)
        return engine

    return load


def device_bytes() -> Callable[[], int | None]:
    """Something that tells how much memory all GPUs have in use; it is asked of a process of its own, as a driver that is
    loaded in this one would take memory itself."""
    if not ask_engine_build().gpus:
        return lambda: None
    return lambda: sum(gpu.total_bytes - gpu.free_bytes for gpu in ask_engine_build().gpus)
