"""Fetching model files: the hub first, the mirror where the hub does not answer, and never a byte unverified.

Policy. Room and permission are checked before anything is asked for. One process works on a file at a time; a second
waits for the first and then finds the file there. What arrives grows in a `.part` and gets its real name only with the
right SHA-256; whatever stops a download (cancel, kill -9, a full disk), the next one goes on from there. Several files
arrive at once, each in a thread of its own; the threads speak to the caller's thread by queue only, so `progress`,
`notice` and `cancelled` are always called on the thread that called `download`.
"""

from __future__ import annotations

import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from models.catalogue import ModelFile
from models.download_job import Desk, DownloadJob, DownloadProgress, bytes_to_come, check_room
from models.errors import DownloadCancelled
from models.inventory import Inventory
from models.partfile import disk_error

FILES_AT_ONCE = 3
_LEAVE_SECONDS = 2.0
"""How long a cancelled download waits for its threads. One stuck in a dead connection is left behind: it reads the
cancel flag before it writes anything, so it can do no harm."""


def download(
    files: Sequence[ModelFile],
    models_dir: Path,
    *,
    offline: bool = False,
    progress: Callable[[DownloadProgress], None] = lambda _: None,
    notice: Callable[[str], None] = lambda _: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[Path]:
    """Have every file on disk, whole and verified; returns their paths in order (of a split GGUF, the first piece's).

    Files already there are not fetched again. Raises the first error of any file, after the others have stopped;
    raises DownloadCancelled soon after `cancelled` turns true. HF_HUB_OFFLINE means the same as `offline`.
    """
    inventory = Inventory(models_dir)
    pieces = {piece.relative_path: piece for file in files for piece in file.pieces()}
    missing = [piece for piece in pieces.values() if inventory.path_of(piece) is None]
    if missing:
        offline = offline or _offline_by_environment()
        _make_writable(models_dir)
        if not offline:
            absent = [piece for piece in missing if not inventory.location(piece).is_file()]
            check_room(models_dir, sum(bytes_to_come(inventory, piece) for piece in absent))
        _Crew(Desk(inventory, offline)).run(missing, progress, notice, cancelled)
    return [inventory.location(file.pieces()[0]) for file in files]


class _Crew:
    """The threads of one download, and the queue over which they report to the caller's thread."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def run(
        self,
        files: Sequence[ModelFile],
        progress: Callable[[DownloadProgress], None],
        notice: Callable[[str], None],
        cancelled: Callable[[], bool],
    ) -> None:
        jobs = iter([DownloadJob(self._desk, file, index, len(files)) for index, file in enumerate(files)])
        take = threading.Lock()
        crew = [
            threading.Thread(target=self._work, args=(jobs, take), daemon=True, name=f"download-{n}")
            for n in range(min(FILES_AT_ONCE, len(files)))
        ]
        for thread in crew:
            thread.start()
        try:
            self._relay(len(files), progress, notice, cancelled)
        finally:
            self._desk.stop.set()
            end = time.monotonic() + _LEAVE_SECONDS
            for thread in crew:
                thread.join(max(0.0, end - time.monotonic()))

    def _relay(
        self,
        outstanding: int,
        progress: Callable[[DownloadProgress], None],
        notice: Callable[[str], None],
        cancelled: Callable[[], bool],
    ) -> None:
        while outstanding:
            if cancelled():
                raise DownloadCancelled("the download was cancelled; what arrived is kept")
            try:
                report = self._desk.reports.get(timeout=0.1)
            except queue.Empty:
                continue
            match report:
                case DownloadProgress():
                    progress(report)
                case str():
                    notice(report)
                case BaseException():
                    raise report
                case ModelFile():
                    outstanding -= 1

    def _work(self, jobs: Iterator[DownloadJob], take: threading.Lock) -> None:
        while not self._desk.stop.is_set():
            with take:
                job = next(jobs, None)
            if job is None:
                return
            try:
                job.run()
                self._desk.reports.put(job.file)
            except BaseException as error:  # noqa: BLE001 - handed to the caller's thread, which raises it
                self._desk.reports.put(error)
                return


def _offline_by_environment() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def _make_writable(models_dir: Path) -> None:
    try:
        models_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=models_dir):
            pass
    except OSError as error:
        raise disk_error(error, models_dir / "model") from None
