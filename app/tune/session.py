"""One run of `tune`: builds what is to be tried, times it within the budget behind a progress bar, and keeps what won.

What was decided before Ctrl-C or the end of the time is kept: every decision stands on its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from app.errors import AppError
from app.interrupt import Interrupt
from app.local_pair import LocalModel, LocalPair
from app.options import LoadChoices
from app.paths import Paths, writable
from app.terminal import progress, say
from app.tune.decision import FAMILY_RISK
from app.tune.drafts import other_drafts
from app.tune.loads import compare
from app.tune.search import Outcome, Search, dimensions_for
from app.tune.store import SETTINGS, Tuned, file_key, kept, location, save, this_machine
from app.wiring import TerminalFront, fitted, load_config
from app.wiring import this_machine as hardware
from engine import EngineDied, EngineError, EngineProcess, LoadCancelled, LoadConfig, LoadProgress
from engine.trial import running_trial

OVERTIME, CALIBRATION_SECONDS = 1.25, 15.0
"""Of the time, and beyond it: when what was begun is left unfinished (a machine so busy that one sample takes minutes)."""
ANSWERS = ("taken", "no gain", "within noise")
"""Outcomes that overrule what an earlier run found, unless there was no time for all of that setting."""
LOADS_SHARE = 0.4
"""Of the time, for what needs a load of its own, where there is any of it."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a run came to."""

    entry: Tuned
    outcomes: Sequence[Outcome]
    complete: bool
    """False after Ctrl-C."""


class _Quiet(TerminalFront):
    """Whether something fits is asked here, not told."""

    def say(self, line: str) -> None:
        pass


def tune(pair: LocalPair, choices: LoadChoices, paths: Paths, seconds: float, interrupt: Interrupt) -> Result:
    """Try everything there is to try, and keep what beat the noise. Raises EngineError when the pair cannot be loaded,
    AppError when the result could not be kept, which is seen beforehand, and OSError when it can be no more."""
    if not writable(folder := location(paths).parent):
        raise AppError(f"cannot write to {folder}, where what is found would be kept")
    with _Run(pair, choices, paths, seconds, interrupt) as run:
        return run.all()


class _Run:
    def __init__(self, pair: LocalPair, choices: LoadChoices, paths: Paths, seconds: float, interrupt: Interrupt) -> None:
        self._pair, self._choices, self._paths, self._interrupt = pair, choices, paths, interrupt
        self._started = time.monotonic()
        self._deadline = self._started + seconds
        self._hard_end = self._started + OVERTIME * seconds + CALIBRATION_SECONDS
        self._config = load_config(pair, choices, paths, say)
        self._machine = hardware(paths.models)
        self._bar: Progress = progress(BarColumn(bar_width=20), TextColumn("{task.fields[left]}"), TextColumn("{task.description}", markup=False))
        self._task: TaskID | None = None

    def __enter__(self) -> _Run:
        self._bar.start()
        self._task = self._bar.add_task("loading", total=self._deadline - self._started, left="")
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def all(self) -> Result:
        machine, fixed = self._machine, self._fixed()
        dimensions = dimensions_for(self._config, machine.physical_cores, machine.logical_cores, fixed, bool(machine.devices))
        loads = self._load_candidates()
        tests = len(dimensions) + len(loads)
        share = LOADS_SHARE if loads else 0.0
        until = self._started + (1 - share) * (self._deadline - self._started)
        search = Search(self._config, dimensions, until, time.monotonic, self._tell, tests)
        outcomes, complete = search.outcomes, True
        config = self._config
        try:
            while not search.done:
                try:
                    with running_trial(self._config, self._cancelled) as trial:
                        search.run(trial)
                except EngineDied as error:
                    search.broken(str(error))
            config = search.config
            config = self._try_loads(config, loads, outcomes, 1 - FAMILY_RISK / max(tests, 1))
            self._calibrate(config)
        except LoadCancelled:
            config, complete = search.config if config is self._config else config, not self._interrupt.seen
            search.out_of_time()
        entry = self._entry(config, outcomes)
        if entry.settings or entry.better_draft or complete:
            save(self._paths, entry)
        return Result(entry, outcomes, complete)

    # ---- loads of their own

    def _load_candidates(self) -> list[tuple[str, dict[str, Any]]]:
        found: list[tuple[str, dict[str, Any]]] = []
        if self._machine.devices:
            if self._choices.gpu_layers is None:
                found.append(("target_gpu_layers", {"target_gpu_layers": 0}))
            if self._pair.draft is not None and self._choices.draft_gpu_layers is None:
                found.append(("draft_gpu_layers", {"draft_gpu_layers": 0}))
        if self._pair.draft is not None and self._choices.draft is None:
            self._tell("looking for other drafts")
            drafts = other_drafts(self._pair.target.path, self._pair.draft.path, self._paths.models)
            found += [("draft", {"draft": draft}) for draft in drafts]
        return found

    def _try_loads(
        self, config: LoadConfig, loads: Sequence[tuple[str, dict[str, Any]]], outcomes: list[Outcome], confidence: float
    ) -> LoadConfig:
        for number, (name, tried) in enumerate(loads):
            shown = {key: value.name if isinstance(value, Path) else value for key, value in tried.items()}
            if not self._fits(tried):
                outcomes.append(Outcome(name, shown, "does not fit"))
                continue
            left = (self._deadline - time.monotonic()) / (len(loads) - number)
            try:
                gain = compare(
                    config, replace(config, **tried), confidence, left, self._cancelled,
                    lambda what, shown=shown: self._tell(f"{', '.join(map(str, shown.values()))}: {what}"),  # type: ignore[misc]  # a default binds this round's values
                )
            except LoadCancelled:
                raise
            except EngineError as error:
                outcomes.append(Outcome(name, shown, "failed", reason=str(error)))
                continue
            if gain is None:
                outcomes.append(Outcome(name, shown, "no time"))
                continue
            taken = gain.beats_the_noise
            outcomes.append(Outcome(name, shown, "taken" if taken else "within noise" if gain.ratio < 1 else "no gain", gain, gain.ratio))
            if taken:
                config = replace(config, **tried)
        return config

    def _fits(self, tried: Mapping[str, Any]) -> bool:
        """Whether the memory plan has room for it with nothing given up that is not given up already."""
        draft: Path | None = tried.get("draft")
        pair = replace(self._pair, draft=LocalModel(draft)) if draft else self._pair
        choices = replace(
            self._choices, draft=str(pair.draft.path) if pair.draft else None,
            gpu_layers=tried.get("target_gpu_layers", self._choices.gpu_layers),
            draft_gpu_layers=tried.get("draft_gpu_layers", self._choices.draft_gpu_layers), force=False,
        )
        try:
            plan = fitted(pair, choices, self._paths, ["auto"], _Quiet(), tuned=False)
        except AppError:
            return False
        return all(self._pair.settings.get(name) == value for name, value in plan.settings.items())

    def _calibrate(self, config: LoadConfig) -> None:
        """One load with the new settings, so that their costs are measured now and not at the next question."""
        if config == self._config:
            return
        self._tell("measuring the pair with these settings")

        def go_on(_: LoadProgress) -> bool:
            return not self._cancelled()

        EngineProcess(config, go_on).close()

    # ---- helpers

    def _fixed(self) -> list[str]:
        """LoadConfig fields that the user or the memory plan has settled."""
        given = {"threads": self._choices.threads, "batch_threads": self._choices.threads, "kv_type": self._choices.kv_type,
                 "flash_attention": self._choices.flash_attention}
        return [*(name for name, value in given.items() if value is not None), *self._pair.settings]

    def _entry(self, config: LoadConfig, outcomes: Sequence[Outcome]) -> Tuned:
        """What was found, and what an earlier run found where this one came to no answer."""
        before = {field.name: getattr(self._config, field.name) for field in fields(LoadConfig)}
        answered = {outcome.name for outcome in outcomes if outcome.status in ANSWERS}
        answered -= {outcome.name for outcome in outcomes if outcome.status == "no time"}
        old = kept(self._paths, self._pair)
        settings = {name: value for name, value in (old.settings if old else {}).items() if name not in answered}
        settings |= {name: getattr(config, name) for name in SETTINGS if getattr(config, name) != before[name]}
        better = old.better_draft if old else None
        if config.draft != self._config.draft:
            better = str(config.draft)
        usual = old.draft if old else file_key(self._pair.draft.path if self._pair.draft else None)
        return Tuned(
            this_machine(), file_key(self._pair.target.path), usual, settings, better,
            tuple(asdict(outcome) for outcome in outcomes), datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def _tell(self, what: str) -> None:
        if self._task is None:
            return
        done = time.monotonic() - self._started
        left = max(0, int(self._deadline - time.monotonic()))
        self._bar.update(self._task, completed=done, description=what, left=f"{left // 60}:{left % 60:02d} left")

    def _cancelled(self) -> bool:
        return self._interrupt.seen or time.monotonic() > self._hard_end
