"""`paceline verify`: is what speculative decoding writes what the target alone would write?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from app.options import (
    DATA_FILE,
    MODES,
    FiniteRange,
    SectionedCommand,
    loading_from,
    loading_options,
    sampling_from,
    sampling_options,
)

DRAFTING, SHORT = "fixed:4", "fixed:2"
"""Modes in which the draft model is used whether or not that pays."""


def _parse_modes(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    modes = tuple(dict.fromkeys(mode.strip() for mode in value.split(",")))
    for mode in modes:
        if not MODES.fullmatch(mode) or mode == "plain":
            raise click.BadParameter(f"{mode!r} is not auto, ngram, draft or fixed:K")
    return modes


@click.command(cls=SectionedCommand)
@click.option("--prompts", type=DATA_FILE, help="JSON lines with question_id, category and turns.  [default: eight short ones]")
@click.option("--modes", callback=_parse_modes, metavar="LIST",
              help=f"Modes to compare with plain decoding.  [default: auto,{DRAFTING}; without a draft: auto,ngram]")
@click.option("-n", "--max-tokens", type=click.IntRange(min=4), default=64, show_default=True, metavar="N", help="Longest reply.")
@click.option("--samples", type=click.IntRange(min=0), default=200, show_default=True, metavar="N",
              help="Short replies drawn at each context, to be held against the target's own distribution; 0: none.")
@click.option("--contexts", type=click.IntRange(min=1), default=4, show_default=True, metavar="N",
              help="Prompts whose first tokens are drawn that often.")
@click.option("--budget", type=FiniteRange(min=0.1), default=8.0, show_default=True, metavar="MINUTES",
              help="Time after which nothing new is begun.")
@click.option("--false-alarm", type=FiniteRange(min=1e-4, max=0.2), default=0.001, show_default=True, metavar="P",
              help="Chance that all tests of the distribution together accuse a right engine.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@loading_options
@sampling_options()
def verify(
    prompts: Path | None, modes: Sequence[str] | None, max_tokens: int, samples: int, contexts: int, budget: float,
    false_alarm: float, as_json: bool, **params: Any,
) -> int:
    """Check on this machine that speculative replies are the target's own.

    At temperature 0: token by token, each difference with the distance of the two tokens, a near tie or a fault. At a
    temperature: replies and their first tokens against the target's distribution, with the sampling options below. The
    exit code is 0 if nothing is wrong.
    """
    loading = loading_from(params)
    from app.bench.manifest import manifest
    from app.bench.prompts import load_prompts
    from app.paths import Paths
    from app.tables import facts_table
    from app.terminal import print_table, say, write_out
    from app.verify.prompts import built_in_prompts
    from app.verify.result import document, judge, places_table, summary_lines
    from app.verify.session import VerifyPlan
    from app.verify.session import verify as run
    from app.wiring import local_pair, running_engine
    from engine import SamplingParams

    sampling = SamplingParams(**sampling_from(params))
    if sampling.greedy:
        raise click.BadParameter("replies at temperature 0 are checked in any case; give one above 0", param_hint="-t")
    questions = load_prompts(prompts) if prompts else built_in_prompts()
    paths = Paths.find()
    pair = local_pair(loading, paths, modes or ["auto"])
    with running_engine(pair, loading, paths) as (engine, interrupt):
        drafts = engine.describe()["draft"] is not None
        chosen = modes or (("auto", DRAFTING) if drafts else ("auto", "ngram"))
        plan = VerifyPlan(
            questions, chosen, SHORT if drafts else "ngram", max_tokens, sampling, samples, contexts if samples else 0, 60 * budget
        )
        findings = run(engine, plan, interrupt)
        judgement = judge(findings, false_alarm)
        if as_json:
            settings = {
                "modes": list(chosen), "max_tokens": max_tokens, "samples": samples, "contexts": contexts, "budget_minutes": budget,
                "prompts": str(prompts) if prompts else None, "context": engine.context, "loading": asdict(loading),
                "sampling": asdict(sampling),
            }
            write_out(json.dumps(document(findings, judgement, manifest({role: model for role, model in pair.as_json().items() if model}, questions, settings), false_alarm)) + "\n")
        else:
            print_table(facts_table(summary_lines(findings, judgement)))
            if places := places_table(findings, judgement):
                print_table(places)
            write_out(f"{judgement.verdict}\n")
        if interrupt.seen:
            say("stopped before the end; the verdict is on what was checked until then")
            return interrupt.exit_code
        if not findings.complete:
            say("the time was up before everything was checked; --budget allows more")
        return 0 if judgement.passed else 1
