"""`paceline tune`: finds the fastest way to run a pair on this machine, and keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from app.options import FiniteRange, SectionedCommand, loading_from, loading_options

if TYPE_CHECKING:
    from app.tune.store import Tuned

NUMERICS = (
    "flash attention and the KV cache's type change the last bits of what the model computes, so a reply may differ from "
    "one made before; `paceline verify` checks that drafting still changes nothing"
)


@click.command(cls=SectionedCommand)
@click.option("--budget", type=FiniteRange(min=0.05), default=3.0, show_default=True, metavar="MINUTES", help="Time to measure.")
@click.option("--show", is_flag=True, help="Show what was found before, and measure nothing.")
@click.option("--reset", is_flag=True, help="Forget it for this pair, and go back to the defaults.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@loading_options
def tune(budget: float, show: bool, reset: bool, as_json: bool, **params: Any) -> int:
    """Find what is fastest here for a pair, and use it from now on.

    Tries threads, prompt batches, flash attention, KV types, and, where there are any, GPU layers and other drafts on this
    disk, each in turns with the present way. Only what is faster beyond the noise is kept; what you set by an option stays
    as you set it, here and later. Run it while nothing else is busy.
    """
    if show and reset:
        raise click.UsageError("--show or --reset, not both", click.get_current_context())
    loading = loading_from(params)
    from app.interrupt import Interrupt
    from app.paths import Paths
    from app.terminal import print_table, say, write_out
    from app.tune import store
    from app.wiring import local_pair

    paths = Paths.find()
    if show:
        return _show(store.load(paths), as_json)
    pair = local_pair(loading, paths, ["auto"], tuned=False)
    if reset:
        forgotten = store.reset(paths, pair)
        text = "forgotten" if forgotten else "nothing was tuned for this pair on this machine"
        write_out((json.dumps({"forgotten": forgotten}) if as_json else text) + "\n")
        return 0
    from app.tune.session import tune as run

    with Interrupt() as interrupt:
        result = run(pair, loading, paths, 60 * budget, interrupt)
        if as_json:
            write_out(json.dumps({"complete": result.complete, **asdict(result.entry)}) + "\n")
        else:
            print_table(_outcomes(result.entry.gains))
            write_out(_summary(result.entry) + "\n")
        if {"flash_attention", "kv_type"} & set(result.entry.settings):
            say(NUMERICS)
        if not result.complete:
            say("stopped before the end; what was decided until then is kept")
            return interrupt.exit_code
    return 0


def _show(entries: Sequence[Tuned], as_json: bool) -> int:
    from app.terminal import print_table, write_out
    from app.tune.store import this_machine

    if as_json:
        write_out(json.dumps({"tuned": [asdict(entry) for entry in entries]}) + "\n")
        return 0
    if not entries:
        write_out("nothing was tuned yet; `paceline tune` does it\n")
        return 0
    here = this_machine()
    for entry in entries:
        pair = " + ".join(name.partition(":")[0] for name in (entry.target, entry.draft) if name)
        where = "" if entry.machine == here else f" (another machine or build: {entry.machine.get('cpu', '')})"
        write_out(f"{pair}{where}, {entry.created}\n")
        print_table(_outcomes(entry.gains))
        write_out(_summary(entry) + "\n")
    return 0


def _summary(entry: Tuned) -> str:
    from app.tune.store import in_words

    found = [in_words(entry.settings)] if entry.settings else []
    if entry.better_draft:
        found.append(f"draft {entry.better_draft}")
    return f"in use from now on: {', '.join(found)}" if found else "nothing beats the present settings; they stay as they are"


def _outcomes(outcomes: Sequence[Mapping[str, Any]]) -> Any:
    """What was tried: each part's change, a turn's change with its interval, and what came of it."""
    from app.tables import table
    from app.tune.decision import Gain
    from app.tune.search import TURN_IN_WORDS
    from app.tune.store import in_words

    rows = []
    for outcome in outcomes:
        gain = Gain(**outcome["gain"]) if outcome["gain"] else None
        turn = gain.in_words() if gain else f"{100 * (outcome['ratio'] - 1):+.1f} %" if outcome["ratio"] else ""
        noise = f"{gain.pairs} pairs, {gain.confidence:.1%}" if gain else "3 pairs" if outcome["ratio"] else ""
        parts = [f"{100 * (outcome['parts'][part] - 1):+.1f} %" if part in outcome["parts"] else "" for part in ("row", "block", "prompt")]
        reason = f": {outcome['reason']}" if outcome["reason"] else ""
        rows.append((in_words(outcome["tried"]), *parts, turn, noise, f"{outcome['status']}{reason}"))
    made = table(("tried", "a token", "a block of 16", "prompt", "time of a turn (interval)", "of", ""), rows)
    made.caption = f"less is faster; a turn: {TURN_IN_WORDS}"
    return made
