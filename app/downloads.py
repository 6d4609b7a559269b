"""Fetching model files with something to look at: one line of progress for each file, remarks between them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from app.errors import Interrupted
from app.interrupt import Interrupt
from app.terminal import progress, say
from app.units import byte_size
from models import DownloadCancelled, DownloadProgress, ModelFile, download


def fetch(files: Sequence[ModelFile], models_dir: Path, *, offline: bool = False) -> list[Path]:
    """Have `files` on disk, whole and verified, and return their paths. Ctrl-C keeps what arrived.

    Raises ModelsError, or Interrupted after Ctrl-C.
    """
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
            raise Interrupted from None


def total_size(files: Sequence[ModelFile]) -> str:
    """`1.6 GB`, or `unknown size` where the catalogue does not know one of them."""
    sizes = [file.bytes for file in files]
    return "unknown size" if None in sizes else byte_size(sum(size for size in sizes if size))


class _Rows:
    """The progress line of each file, made when the file is first heard of; without a terminal one remark each."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[int, TaskID] = {}
        self._announced: set[int] = set()

    def update(self, report: DownloadProgress) -> None:
        if self._bars.disable:
            self._announce(report)
            return
        if report.index not in self._tasks:
            self._tasks[report.index] = self._bars.add_task(report.name, total=report.total_bytes)
        phase = "" if report.phase == "downloading" else f" ({report.phase})"
        self._bars.update(
            self._tasks[report.index], description=report.name + phase,
            completed=report.done_bytes, total=report.total_bytes,
        )

    def _announce(self, report: DownloadProgress) -> None:
        if report.phase == "downloading" and report.source and report.index not in self._announced:
            self._announced.add(report.index)
            size = f" ({byte_size(report.total_bytes)})" if report.total_bytes else ""
            say(f"fetching {report.name}{size} from the {report.source}")


def _bars() -> Progress:
    return progress(
        TextColumn("{task.description}", markup=False), BarColumn(bar_width=20), DownloadColumn(),
        TransferSpeedColumn(), TimeRemainingColumn(compact=True),
    )

