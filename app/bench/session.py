"""One comparison from plan to saved result, behind a progress bar. However it ends, what was measured is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from app.atomic import write_atomically
from app.bench.result import document, table
from app.bench.runner import Plan, Skipped, run
from app.bench.statistics import Measurement, by_category
from app.interrupt import Interrupt
from app.terminal import print_table, progress, say
from engine import Engine

SAVE_EVERY = 10
"""Replies between two saves of the result: a native crash costs at most this many."""


def compare_modes(engine: Engine, plan: Plan, made_with: Mapping[str, Any], out: Path | None, interrupt: Interrupt) -> bool:
    """Run the plan behind a progress bar. What was measured is saved and shown however the run ends.

    False if the result could not be saved; a disk that is full does not stop the measuring.
    """
    rows: list[Measurement] = []
    skipped: list[Skipped] = []

    def save(*, complete: bool) -> bool:
        if out is None:
            return True
        try:
            write_atomically(out, json.dumps(document(made_with, rows, skipped, complete=complete), indent=1) + "\n")
        except OSError as error:
            say(f"the result is not saved: {error.filename}: {error.strerror}")
            return False
        return True

    complete, saved = False, True
    interrupt.hook = engine.cancel
    try:
        with _bar() as bar:
            task = bar.add_task("starting", total=plan.replies)
            for result in run(engine, plan, lambda: interrupt.seen):
                if isinstance(result, Skipped):
                    skipped.append(result)
                    say(f"prompt {result.question_id} is skipped: {result.reason}")
                    bar.advance(task, result.replies)
                    continue
                rows.append(result)
                bar.update(task, advance=1, description=_describe(result))
                if saved and len(rows) % SAVE_EVERY == 0:
                    saved = save(complete=False)
        complete = not interrupt.seen
    finally:
        saved = save(complete=complete)
        if rows:
            print_table(table(by_category(rows), greedy=plan.request.sampling.greedy))
        if not complete:
            say(f"{len(rows)} of {plan.replies} replies were measured" + (f"; they are in {out}" if out and saved else ""))
    return saved


def _bar() -> Progress:
    return progress(
        BarColumn(bar_width=20), MofNCompleteColumn(), TimeRemainingColumn(compact=True),
        TextColumn("{task.description}", markup=False),
    )


def _describe(row: Measurement) -> str:
    speed = f"{row.tokens_per_second:.1f} tokens/s" if row.tokens_per_second else "too short to time"
    return f"{row.category} {row.question_id}, {row.mode}: {speed}"
