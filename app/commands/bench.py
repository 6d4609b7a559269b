"""`paceline bench`: measurements that a reader can trust and repeat."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import click

from app.options import (
    MODES,
    READABLE_FILE,
    SectionedCommand,
    loading_from,
    loading_options,
    sampling_from,
    sampling_options,
)

PLAIN = "plain"
GREEDY = 0.0


@click.group()
def bench() -> None:
    """Measure how fast this machine decodes."""


def _parse_modes(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[str, ...]:
    modes = tuple(dict.fromkeys(mode.strip() for mode in value.split(",")))
    for mode in modes:
        if not MODES.fullmatch(mode):
            raise click.BadParameter(f"{mode!r} is not auto, plain, ngram, draft or fixed:K")
    if PLAIN not in modes:
        raise click.BadParameter("plain must be among them: the others are measured against it")
    return modes


@bench.command(cls=SectionedCommand)
@click.option("--prompts", type=READABLE_FILE, required=True, help="JSON lines with question_id, category and turns.")
@click.option("--modes", default="plain,auto", show_default=True, callback=_parse_modes, metavar="LIST",
              help="Modes to compare, with plain among them.")
@click.option("--per-category", type=click.IntRange(min=1), metavar="N", help="Only the first N prompts of each category.")
@click.option("--turns", type=click.Choice(["first", "all"]), default="first", show_default=True, help="Turns of each prompt.")
@click.option("-n", "--max-tokens", type=click.IntRange(min=2), default=128, show_default=True, metavar="N", help="Longest reply.")
@click.option("--repeat", type=click.IntRange(min=1), default=3, show_default=True, metavar="N", help="Rounds over each prompt.")
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Seed of the first repeat; the next ones count on.")
@click.option("--rule", type=click.Choice(["block", "match"]), default="block", hidden=True)
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Write everything measured to this file.")
@loading_options
@sampling_options(temperature=GREEDY)
def compare(
    prompts: Path, modes: Sequence[str], per_category: int | None, turns: str, max_tokens: int, repeat: int,
    seed: int | None, rule: Literal["block", "match"], out: Path | None, **params: Any,
) -> int:
    """Compare decoding modes on one loaded pair, interleaved."""
    loading = loading_from(params)
    from app.bench.manifest import manifest
    from app.bench.prompts import load_prompts
    from app.bench.runner import Plan
    from app.bench.session import compare_modes
    from app.paths import Paths
    from app.wiring import local_pair, running_engine
    from engine import GenerationRequest, SamplingParams

    sampling = SamplingParams(**{"temperature": GREEDY, **sampling_from(params)})
    request = GenerationRequest(sampling=sampling, max_tokens=max_tokens, rule=rule)
    questions = load_prompts(prompts, all_turns=turns == "all", per_category=per_category)
    plan = Plan(questions, modes, repeat, request, seed)
    if out is not None and not os.access(out.resolve().parent, os.W_OK):
        raise click.BadParameter(f"cannot write to {out.resolve().parent}", param_hint="--json")

    paths = Paths.find()
    pair = local_pair(loading, paths, modes)
    with running_engine(pair, loading, paths) as (engine, interrupt):
        settings = {
            "modes": list(modes), "repeat": repeat, "max_tokens": max_tokens, "turns": turns, "rule": rule, "seed": seed,
            "prompts": str(prompts), "per_category": per_category, "context": engine.context,
            "load_ms": round(engine.load_seconds * 1000, 1), "loading": asdict(loading), "sampling": asdict(sampling),
        }
        saved = compare_modes(engine, plan, manifest(pair.as_json(), settings), out, interrupt)
        return interrupt.exit_code if interrupt.seen else int(not saved)
