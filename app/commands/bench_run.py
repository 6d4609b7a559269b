"""`paceline bench run`: the options, what they mean together, and going on with a run that was cut short."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.atomic import check_output
from app.bench.prompts import SUITES
from app.errors import AppError
from app.options import (
    DATA_FILE,
    MODES,
    FiniteRange,
    LoadChoices,
    SectionedCommand,
    loading_from,
    loading_options,
    overwrite_option,
    sampling_from,
    sampling_options,
)

if TYPE_CHECKING:
    from app.bench.result import Result

GREEDY = 0.0
MOST_AT_ONCE = 64
"""Each is a process with models of its own."""
NEW_ON_RESUME = frozenset({"resume", "budget", "precision", "repeat", "require", "yes", "offline", "force"})
"""Options that may differ when a run goes on: they decide how long, not what."""
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*([smh]?)")


def _listed(kind: Callable[[str], Any] = str) -> Callable[[click.Context, click.Parameter, str | None], tuple[Any, ...]]:
    def parse(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[Any, ...]:
        parts = [part.strip() for part in (value or "").split(",") if part.strip()]
        if value is not None and not parts:
            raise click.BadParameter("the list is empty; leave the option out, or name at least one")
        try:
            return tuple(dict.fromkeys(kind(part) for part in parts))
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return parse


def _whole(least: int, most: int = 10**9) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or len(text) > len(str(most)) or not least <= int(text) <= most:
            raise ValueError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return parse


def _mode(text: str) -> str:
    if not MODES.fullmatch(text):
        raise ValueError(f"{text!r} is not auto, plain, ngram, draft or fixed:K")
    return text


def _suite(text: str) -> str:
    if text not in (*SUITES, "all"):
        raise ValueError(f"there is no suite {text!r}; there are {', '.join(SUITES)}, and all")
    return text


def _seconds(_ctx: click.Context, _param: click.Parameter, value: str) -> float | None:
    if value == "none":
        return None
    found = _TIME.fullmatch(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is not a time; say 90s, 20m, 2h or none")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


@click.command(cls=SectionedCommand)
@click.option("--suites", callback=_listed(_suite), metavar="LIST",
              help=f"Suites of prompts: {', '.join(SUITES)}, or all.  [default: all but large_context]")
@click.option("--prompts", type=DATA_FILE, help="Instead of suites: JSON lines with question_id, category and turns (Spec-Bench).")
@click.option("--per-category", type=click.IntRange(min=1), metavar="N", help="Only the first N prompts of each category.")
@click.option("--turns", type=click.Choice(["first", "all"]), default="first", show_default=True, help="Turns of a file's prompts.")
@click.option("--modes", default="plain,auto", show_default=True, callback=_listed(_mode), metavar="LIST",
              help="Modes to compare: auto, plain, ngram, draft, fixed:K.")
@click.option("--targets", callback=_listed(), metavar="LIST", help="Further targets (other quantisations), each as --target.")
@click.option("--drafts", callback=_listed(), metavar="LIST", help="Further drafts, each as --draft.")
@click.option("-n", "--max-tokens", default="128", show_default=True, callback=_listed(_whole(2)), metavar="LIST",
              help="Longest reply; further lengths are compared with the first.")
@click.option("--batch", callback=_listed(_whole(64)), metavar="LIST",
              help="Prompt tokens read by one decode; further ones are compared with the first.")
@click.option("--at-once", callback=_listed(_whole(1, MOST_AT_ONCE)), metavar="LIST",
              help="Also measure the throughput of that many replies at once, each in a process of its own, as in 1,2,4.")
@click.option("--repeat", type=click.IntRange(min=1), default=5, show_default=True, metavar="N", help="Most replies to each prompt.")
@click.option("--precision", type=FiniteRange(min=0), default=0.02, show_default=True, metavar="X",
              help="A category whose ratios are known within this share of themselves is not repeated.")
@click.option("--budget", default="30m", show_default=True, callback=_seconds, metavar="TIME",
              help="End after this time (loading and --at-once come on top): 90s, 20m, 2h or none.")
@click.option("--require", multiple=True, metavar="RULE",
              help='A rule that sets the exit code: "auto>=0.97*plain in every category". By the median; end it with `by interval` for the whole interval. Repeatable.')
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Seed of the first repeat; the next ones count on. `auto` then decides by stored costs, not by its clock.")
@click.option("--rule", type=click.Choice(["block", "match"]), default="block", hidden=True)
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Write everything measured to this file.")
@click.option("--resume", type=DATA_FILE, help="Go on with the run in this file, with its options.")
@overwrite_option
@loading_options
@sampling_options(temperature=GREEDY)
def run(**params: Any) -> int:
    """Measure modes, drafts, targets, lengths and batches against plain decoding, one variable at a time.

    The first of everything is the base; each further value is put in its place alone. Replies are interleaved, each from an
    empty cache, and repeated until the ratios are known precisely or the time is up. Ctrl-C keeps what was measured. All
    load with the engine's own settings and the options below, whatever `paceline tune` found for one of the pairs.
    """
    resume: Path | None = params.pop("resume")
    overwrite: bool = params.pop("overwrite")
    if resume is None:
        if params["out"] is not None:
            check_output(params["out"], overwrite=overwrite, otherwise=", --resume goes on with it")
        return _run(params, None)
    if overwrite:
        raise click.UsageError("--resume goes on with the file; leave out --overwrite")
    check_output(resume, overwrite=True)
    from app.bench.result import read_result

    source = click.get_current_context().get_parameter_source
    given = {name for name in params if source(name) == click.core.ParameterSource.COMMANDLINE}
    if other := sorted(given - NEW_ON_RESUME):
        raise click.UsageError(f"--resume takes its options from {resume}; leave out --{other[0].replace('_', '-')}")
    before = read_result(resume)
    saved = options_from_json(before.manifest["settings"]["options"])
    if set(saved) | {"out"} != set(params):
        raise AppError(f"{resume}: the options in it are not those of `bench run`; measure again")
    return _run({**params, **saved, **{name: params[name] for name in given}, "out": resume}, before)


def options_to_json(params: dict[str, Any]) -> dict[str, Any]:
    """The options as a result keeps them."""
    return {name: str(value) if isinstance(value, Path) else value for name, value in params.items() if name != "out"}


def options_from_json(saved: dict[str, Any]) -> dict[str, Any]:
    """The options as click gave them: tuples again. A path is text still, which `_run` takes too."""

    def tupled(value: Any) -> Any:
        return tuple(tupled(part) for part in value) if isinstance(value, list) else value

    return {name: tupled(value) for name, value in saved.items()} | {"prompts": saved.get("prompts") or None}


def _run(params: dict[str, Any], before: Result | None) -> int:
    saved = options_to_json(params)
    from pydantic import TypeAdapter, ValidationError

    from app.bench.compose import RunOptions, bench_run
    from engine import SamplingParams

    try:
        loading = TypeAdapter(LoadChoices).validate_python(asdict(loading_from(params)))
        options = TypeAdapter(RunOptions).validate_python({field.name: params.pop(field.name) for field in fields(RunOptions)})
        sampling = TypeAdapter(SamplingParams).validate_python({"temperature": GREEDY, **sampling_from(params)})
    except ValidationError as error:  # of a result that was edited
        first = error.errors(include_url=False)[0]
        raise AppError(f"cannot go on with options that were edited ({'.'.join(map(str, first['loc']))}: {first['msg'].lower()})") from None
    if options.prompts is not None and options.suites:
        raise click.UsageError("give --suites or --prompts, not both")
    return bench_run(options, loading, sampling, saved, before)
