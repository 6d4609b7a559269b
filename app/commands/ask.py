"""`paceline ask`: one question, one reply on standard output, everything else on standard error.

Whatever can be found wrong without a model (files, schema, settings, an unwritable trace) is, before one is loaded.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.errors import AppError
from app.options import (
    READABLE_FILE,
    FiniteRange,
    SectionedCommand,
    check_mode,
    loading_from,
    loading_options,
    sampling_from,
    sampling_options,
)
from app.prompt import compose, read_file, read_pipe
from app.report import answer_json, stats_table
from app.terminal import say, say_table, write_out

if TYPE_CHECKING:
    from app.interrupt import Interrupt
    from app.local_pair import LocalPair
    from app.paths import Paths
    from engine import Engine, Finished, GenerationRequest


@click.command(cls=SectionedCommand)
@click.argument("question", nargs=-1)
@click.option("-f", "--file", "files", type=click.Path(path_type=Path), multiple=True, help="Text file the question is about; repeatable.")
@click.option("--system", help="System prompt.")
@click.option("--mode", default="auto", show_default=True, callback=check_mode, metavar="MODE",
              help="auto, plain (no drafting), ngram (copying from the text), draft (the small model only), fixed:K.")
@loading_options
@click.option("-n", "--max-tokens", type=click.IntRange(min=1), metavar="N", default=1024, show_default=True, help="Longest reply.")
@click.option("--stop", multiple=True, help="End the reply before this text; repeatable.")
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Same seed, same machine: same reply.")
@sampling_options()
@click.option("--json-schema", type=READABLE_FILE, help="The reply is JSON that fits this schema.")
@click.option("--grammar", type=READABLE_FILE, help="The reply fits this GBNF grammar.")
@click.option("--stats", is_flag=True, help="A short table of speeds on standard error.")
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), help="Append one JSON line per round to this file.")
@click.option("--shadow", type=FiniteRange(0, 1), metavar="RATE",
              help="Check this share of replies against the target alone, after they were printed.  [default: shadow_rate of the settings]")
@click.option("--no-stream", is_flag=True, help="Print the reply when it is complete.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: reply, timings, drafting.")
def ask(
    question: Sequence[str], files: Sequence[Path], system: str | None, mode: str, max_tokens: int,
    stop: Sequence[str], seed: int | None, json_schema: Path | None, grammar: Path | None,
    stats: bool, trace: Path | None, shadow: float | None, no_stream: bool, as_json: bool, **params: Any,
) -> int:
    """Ask one question: the reply goes to standard output.

    Piped input and files become part of the question: git diff | paceline ask "review this"
    """
    loading = loading_from(params)
    message = _message(" ".join(question), files)
    if trace is not None:
        trace.open("a").close()

    from app.paths import Paths
    from app.wiring import local_pair, running_engine
    from engine import ChatMessage, GenerationRequest, SamplingParams

    sampling = SamplingParams(**sampling_from(params), grammar=_text(grammar), json_schema=_schema(json_schema))
    turns = [ChatMessage("system", system)] if system else []
    request = GenerationRequest(
        messages=(*turns, ChatMessage("user", message)), sampling=sampling, max_tokens=max_tokens,
        stop=tuple(stop), mode=mode, seed=seed, trace=trace,
    )
    paths = Paths.find()
    pair = local_pair(loading, paths, [mode])
    with running_engine(pair, loading, paths) as (engine, interrupt):
        finished = _answer(engine, request, interrupt, pair, as_json=as_json, stream=not (as_json or no_stream))
        if stats:
            say_table(stats_table(finished, engine.load_seconds, pair.tuned))
        if finished.reason == "cancelled":
            return interrupt.exit_code
        if remark := _why_it_stopped(finished.reason, request):
            say(remark)
        _check_in_the_shadow(engine, request, finished, pair, paths, shadow)
    return 0


def _check_in_the_shadow(
    engine: Engine, request: GenerationRequest, finished: Finished, pair: LocalPair, paths: Paths, rate: float | None
) -> None:
    """Read the reply again, if it is one of those to be checked; what is said goes to standard error. Whoever asked for it
    by an option hears of every outcome."""
    from app.verify.shadow import due, in_words, keep

    if not due(_shadow_rate(paths) if rate is None else rate):
        return
    result = engine.shadow_check(request, finished)
    line = keep(paths, pair.as_json(), request, result)
    if line or rate is not None:
        say(line or in_words(result))


def _shadow_rate(paths: Paths) -> float:
    from app.settings import SettingsError, load_settings

    try:
        return load_settings(paths).shadow_rate
    except SettingsError:  # the chat says what is wrong with the file; a question can be answered without it
        return 0.0


def _answer(
    engine: Engine, request: GenerationRequest, interrupt: Interrupt, pair: LocalPair, *, as_json: bool, stream: bool
) -> Finished:
    """Have the reply made and written: piece by piece, at the end, or as JSON."""
    from app.oneshot import run_oneshot

    finished = run_oneshot(engine, request, interrupt, write_out if stream else None)
    if as_json:
        write_out(json.dumps(answer_json(finished, engine.load_seconds, pair.as_json(), pair.tuned), ensure_ascii=False) + "\n")
        return finished
    if not stream:
        write_out(finished.text)
    if not finished.text.endswith("\n"):
        write_out("\n")
    return finished


def _message(question: str, files: Sequence[Path]) -> str:
    """The user message. Reads standard input unless that is a terminal."""
    materials = [read_file(path) for path in files]
    if sys.stdin is not None and not sys.stdin.isatty() and (piped := read_pipe(sys.stdin.buffer)):
        materials.append(piped)
    if not question and not materials:
        raise click.UsageError("nothing is asked: give a question, or pipe one in", click.get_current_context())
    return compose(question, materials)


def _text(path: Path | None) -> str | None:
    return None if path is None else read_file(path).text


def _schema(path: Path | None) -> str | None:
    """The schema's text, known to be JSON."""
    text = _text(path)
    if text is not None:
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise AppError(f"{path} is not JSON: {error}") from None
    return text


def _why_it_stopped(reason: str, request: GenerationRequest) -> str | None:
    if reason == "length":
        return f"the reply was cut at {request.max_tokens} tokens; --max-tokens allows more"
    if reason == "context":
        return "the reply was cut because the context is full; --ctx allows more"
    return None
