"""One run from plan to saved result, behind a progress bar. However it ends, what was measured is kept."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from app.atomic import write_atomically
from app.bench import runner
from app.bench.at_once import Load, load_summary, measure_load
from app.bench.pace import in_words
from app.bench.pool import EnginePool
from app.bench.require import Rule, judge
from app.bench.result import Result
from app.bench.runner import Run, Skipped
from app.bench.summary import summaries
from app.bench.tables import load_table, run_table
from app.interrupt import Interrupt
from app.terminal import WIDE, print_table, progress, say, write_out

SAVE_SECONDS = 10.0
"""A native crash or a power cut costs at most what was measured in that time."""


class Saver:
    """Writes the result now and then. A disk that is full does not stop the measuring; it is told once."""

    def __init__(self, out: Path | None, content: Callable[[], object]) -> None:
        self._out = out
        self._content = content
        self._next = 0.0
        self.works = True

    def now_and_then(self) -> None:
        if time.monotonic() >= self._next and self.works:
            self.save()

    def save(self) -> None:
        if self._out is None:
            return
        try:
            write_atomically(self._out, json.dumps(self._content(), indent=1) + "\n")
            self.works = True
        except OSError as error:
            if self.works:
                say(f"the result is not saved: {error.filename}: {error.strerror}")
            self.works = False
        self._next = time.monotonic() + SAVE_SECONDS


def execute(
    pool: EnginePool, plan: Run, load: Load | None, result: Result, rules: Sequence[Rule], out: Path | None,
    interrupt: Interrupt,
) -> bool:
    """Run the plan and then the load behind a progress bar, save and show. `result` may hold what was measured before.

    False if nothing was measured, the result could not be saved, or a rule does not hold. Raises EngineError when an engine cannot be loaded;
    what was measured is saved and shown all the same.
    """
    saver = Saver(out, result.as_json)
    interrupt.hook = pool.cancel
    state = runner.Progress(rows=result.rows, skipped=result.skipped)
    categories = list(dict.fromkeys(prompt.category for prompt in plan.prompts))
    try:
        with bar() as shown:
            task = shown.add_task("loading", total=None)
            for row in runner.run(pool, plan, state, lambda: interrupt.seen):
                if isinstance(row, Skipped):
                    say(f"prompt {row.question_id} is skipped: {row.config}: {row.reason}")
                shown.update(task, total=state.planned, completed=state.done, description=describe(state))
                if state.rows:
                    saver.now_and_then()
            result.engines = engine_facts(pool, plan)
            if load is not None and not interrupt.seen and state.ended != "stopped":
                pool.close()
                passes = len(load.at_once) * load.repeats * len(load.modes)
                shown.update(task, total=passes, completed=0, description="several replies at once")
                result.throughput.clear()  # of a run that is resumed
                for throughput in measure_load(pool, load, lambda: interrupt.seen):
                    result.throughput.append(throughput)
                    shown.advance(task)
                    saver.now_and_then()
        result.ended = state.ended
    finally:
        if interrupt.seen:
            result.ended = "stopped"
        result.engines = result.engines or engine_facts(pool, plan)
        result.verdicts = [verdict for rule in rules for verdict in judge(rule, result.rows, categories)]
        measured = bool(result.rows or result.throughput)
        if measured:  # or it would replace an earlier result by nothing
            saver.save()
        show(result, greedy=plan.request.sampling.greedy)
        if pool.made_way:
            say(f"memory did not hold all engines at once: {pool.made_way} times one was unloaded for another")
        told = {"stopped": "stopped", "budget": "the time was up", "": "it broke off"}.get(result.ended)
        if told and measured:
            say(f"{told}: {len(result.rows)} replies were measured" + (f"; they are in {out}" if out and saver.works else ""))
    if not measured:
        say("nothing was measured")
        return False
    return saver.works and all(verdict.holds for verdict in result.verdicts)


def show(result: Result, *, greedy: bool) -> None:
    """The tables and the verdicts on standard output."""
    if result.rows:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDE
        print_table(run_table(summaries(result.rows, result.configs), greedy=greedy, width=width))
    if result.throughput:
        print_table(load_table(load_summary(result.throughput)))
    for verdict in result.verdicts:
        write_out(f"{'holds' if verdict.holds else 'FAILS'}  {verdict.rule}  [{verdict.place}]  {verdict.words}\n")


def engine_facts(pool: EnginePool, plan: Run) -> list[dict[str, object]]:
    """What the pool has loaded so far and which configurations it serves, as JSON values."""
    return [
        {
            "configs": [name for name, wanted in plan.engines.items() if wanted == key], "target": str(key.target),
            "draft": str(key.draft) if key.draft else None, "batch": key.batch, **facts,
        }
        for key, facts in pool.loaded.items()
    ]


def bar() -> Progress:
    """Conversations of this pass, and what is going on."""
    return progress(BarColumn(bar_width=20), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))


def describe(state: runner.Progress) -> str:
    """The last reply, and the time left."""
    parts = [f"repeat {state.repeat + 1}"]
    if state.rows:
        row = state.rows[-1]
        speed = f"{row.tokens_per_second:.1f} tokens/s" if row.tokens_per_second else "too short to time"
        parts.append(f"{row.category}, {row.config}: {speed}")
    parts.append(in_words(state.seconds_left))
    return "; ".join(part for part in parts if part)
