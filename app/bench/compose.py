"""`bench run` put together: prompts, configurations, files, rules, and the run over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from app.bench import setup
from app.bench.at_once import Load
from app.bench.manifest import differences, manifest
from app.bench.plan import PLAIN, Configuration, Variations, configurations, in_turns
from app.bench.pool import EnginePool
from app.bench.prompts import SUITES, BenchPrompt, load_prompts, load_suites
from app.bench.require import parse_rule
from app.bench.result import Result
from app.bench.runner import Run
from app.bench.session import execute
from app.errors import AppError
from app.interrupt import Interrupt
from app.options import LoadChoices
from app.paths import Paths
from engine import GenerationRequest, SamplingParams
from engine.loading import physical_cores

LARGE_CONTEXT = "large_context"
LARGE_CONTEXT_TOKENS = 10_240
"""Room for 8,400 tokens of Qwen2.5's vocabulary, a fifth more of another's, and a reply."""
SAME_ON_RESUME = ("machine.cpu", "machine.cores", "machine.gpus", "build", "models", "prompts")
LOAD_REPEATS = 3


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the command line said; see its help."""

    suites: tuple[str, ...]
    prompts: Path | None
    per_category: int | None
    turns: str
    modes: tuple[str, ...]
    targets: tuple[str, ...]
    drafts: tuple[str, ...]
    max_tokens: tuple[int, ...]
    batch: tuple[int, ...]
    at_once: tuple[int, ...]
    repeat: int
    precision: float
    budget: float | None
    require: tuple[str, ...]
    seed: int | None
    rule: Literal["block", "match"]
    out: Path | None


def bench_run(
    options: RunOptions, loading: LoadChoices, params: SamplingParams, saved: Mapping[str, Any], before: Result | None
) -> int:
    """Measure, and return the exit code. `saved` is how the result keeps the options; `before` is a run to go on with.

    Raises AppError, ModelsError, EngineError, Interrupted.
    """
    suites = SUITES if "all" in options.suites else options.suites or tuple(name for name in SUITES if name != LARGE_CONTEXT)
    prompts = _prompts(options, suites)
    if loading.ctx is None and options.prompts is None and LARGE_CONTEXT in suites:
        loading = replace(loading, ctx=LARGE_CONTEXT_TOKENS)
    configs = configurations(Variations(
        options.modes, (loading.target, *options.targets), (loading.draft, *options.drafts), options.max_tokens,
        options.batch or (None,),
    ))
    categories = list(dict.fromkeys(prompt.category for prompt in prompts))
    rules = [parse_rule(text, [config.name for config in configs], categories) for text in options.require]
    request = GenerationRequest(sampling=params, max_tokens=options.max_tokens[0], rule=options.rule)

    paths = Paths.find()
    prepared = setup.prepare(configs, loading, paths)
    settings = {
        "options": dict(saved), "suites": None if options.prompts else list(suites), "loading": asdict(loading),
        "sampling": asdict(params),
    }
    made_with = manifest(prepared.models(configs), prompts, settings)
    if before is not None and (changed := differences(before.manifest, made_with, SAME_ON_RESUME)):
        raise AppError(f"cannot go on, as this is not what was measured before: {'; '.join(changed)}")
    if before is not None and before.configs != configs:
        raise AppError("cannot go on: the configurations in the file are not those of its options; it was edited")
    plan = Run(
        prompts, configs, prepared.engines, request, options.repeat, options.precision, options.budget, options.seed
    )
    with (
        Interrupt() as interrupt,
        EnginePool(setup.loader(prepared, loading, paths, interrupt), setup.device_bytes()) as pool,
    ):
        try:
            load = _load(options, configs, prepared, prompts, replace(request, seed=options.seed))
            fine = execute(pool, plan, load, before or Result(made_with, configs), rules, options.out, interrupt)
        finally:
            interrupt.hook = None  # what it cancels is about to end
    return interrupt.exit_code if interrupt.seen else int(not fine)


def _prompts(options: RunOptions, suites: Sequence[str]) -> list[BenchPrompt]:
    if options.prompts is None:
        return load_suites(suites, per_category=options.per_category)
    return load_prompts(options.prompts, all_turns=options.turns == "all", per_category=options.per_category)


def _load(
    options: RunOptions, configs: Sequence[Configuration], prepared: setup.Prepared, prompts: Sequence[BenchPrompt],
    request: GenerationRequest,
) -> Load | None:
    """The baseline and the first other mode, on twice as many prompts as there are processes at most."""
    if not options.at_once:
        return None
    other = next((config.mode for config in configs if config.mode != PLAIN and not config.varied), PLAIN)
    order = in_turns([prompt.category for prompt in prompts])[: 2 * max(options.at_once)]
    key = prepared.engines[other]
    return Load(
        prompts=[prompts[index] for index in order], modes=list(dict.fromkeys((PLAIN, other))), at_once=sorted(options.at_once),
        repeats=min(options.repeat, LOAD_REPEATS), request=request, key=key,
        threads=physical_cores(), fixed_threads=key.threads is not None,
    )
