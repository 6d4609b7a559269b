"""Fetching model files with something to look at: one line of progress for each file, remarks between them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from app.interrupt import Interrupt
from app.terminal import progress, say, stderr_is_terminal
from models import DownloadCancelled, DownloadProgress, ModelFile, download


def fetch(files: Sequence[ModelFile], models_dir: Path, *, offline: bool = False) -> list[Path]:
    """Have `files` on disk, whole and verified, and return their paths. Ctrl-C keeps what arrived.

    Raises ModelsError, or KeyboardInterrupt after an orderly stop.
    """
    if not stderr_is_terminal():
        say(f"fetching {' and '.join(file.file for file in files)} ({total_size(files)}) to {models_dir}")
    with Interrupt() as interrupt, _bars() as bars:
        rows = _Rows(bars)
        try:
            return download(
                files, models_dir, offline=offline, progress=rows.update, notice=say,
                cancelled=lambda: interrupt.seen,
            )
        except DownloadCancelled:
            bars.stop()
            say("stopped; what arrived is kept, and the same command goes on from there")
            raise KeyboardInterrupt from None


def total_size(files: Sequence[ModelFile]) -> str:
    """`1.6 GB`, or `unknown size` where the catalogue does not know one of them."""
    sizes = [file.bytes for file in files]
    return "unknown size" if None in sizes else decimal(sum(size for size in sizes if size))


class _Rows:
    """The progress line of each file, made when the file is first heard of."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[int, TaskID] = {}

    def update(self, report: DownloadProgress) -> None:
        if report.index not in self._tasks:
            self._tasks[report.index] = self._bars.add_task(report.name, total=report.total_bytes)
        phase = "" if report.phase == "downloading" else f" ({report.phase})"
        self._bars.update(
            self._tasks[report.index], description=report.name + phase,
            completed=report.done_bytes, total=report.total_bytes,
        )


def _bars() -> Progress:
    return progress(
        TextColumn("{task.description}", markup=False), BarColumn(bar_width=20), DownloadColumn(),
        TransferSpeedColumn(), TimeRemainingColumn(compact=True),
    )

