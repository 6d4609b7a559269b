"""One load for the chat, from what was chosen to a running engine, without a word on the terminal.

The choice of files and the plan for memory are app/wiring.py's; here they tell a program instead of a person. Runs on
whatever thread calls it; `stopped` ends it at the next step, with the engine's process gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from app.errors import AppError
from app.options import LoadChoices
from app.paths import Paths
from app.wiring import FilesMissing, Loaded, files_for, fitted, loaded_process
from models import DownloadCancelled, DownloadProgress, ModelFile, ModelsError, download

MODES = ("auto",)
"""A chat's mode may change with every reply, so the draft is loaded whatever the mode is now."""

OnStage = Callable[[str, float], None]


class LoadStopped(Exception):
    """The user stopped the load; nothing of it is left."""


def load(
    choices: LoadChoices, paths: Paths, on_stage: OnStage, stopped: Callable[[], bool], free_memory: Callable[[], None]
) -> tuple[Loaded, tuple[str, ...]]:
    """Load the chosen pair; with it, what the user should know of the choice, one line each. `free_memory` is called once
    the files are known to be here, before memory is looked at.

    Raises FilesMissing, AppError, EngineError or LoadStopped, in one line fit for the user.
    """
    front = _Front(on_stage, stopped)
    # A download is weighed against memory that the old model still holds; what is here is weighed below, without it.
    chosen = choices if choices.yes else replace(choices, force=True)
    try:
        pair = files_for(chosen, paths, MODES, front)
        front.step()
        free_memory()
        pair = fitted(pair, choices, paths, MODES, front)
    except ModelsError as error:
        raise AppError(str(error)) from None

    def show(stage: str, fraction: float) -> None:
        front.step()
        on_stage(stage, fraction)

    front.step()
    return loaded_process(pair, choices, paths, front, show), tuple(front.remarks)


def missing_bytes(missing: FilesMissing) -> int | None:
    """Of all the files together; None where the catalogue does not know one of them."""
    sizes = [file.bytes for file in missing.files]
    return None if None in sizes else sum(size for size in sizes if size)


class _Front:
    """A wiring.Front that keeps remarks and asks nobody."""

    def __init__(self, on_stage: OnStage, stopped: Callable[[], bool]) -> None:
        self.remarks: list[str] = []
        self._on_stage = on_stage
        self._stopped = stopped

    def step(self) -> None:
        """Raise LoadStopped if that is wanted."""
        if self._stopped():
            raise LoadStopped

    def say(self, line: str) -> None:
        self.remarks.append(line)

    def refusal(self, names: str, size: str, models_dir: Path) -> str | None:
        return f"not on this disk: {names} ({size})"

    def fetch(self, files: Sequence[ModelFile], models_dir: Path, *, offline: bool = False) -> object:
        try:
            return download(
                files, models_dir, offline=offline, progress=self._show, notice=self.say, cancelled=self._stopped
            )
        except DownloadCancelled:
            raise LoadStopped from None

    def _show(self, report: DownloadProgress) -> None:
        fraction = report.done_bytes / report.total_bytes if report.total_bytes else 0.0
        self._on_stage(f"{report.phase} {report.name}", min(1.0, fraction))
