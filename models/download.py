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
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from models import mirror
from models.catalogue import ModelFile
from models.errors import ChecksumMismatch, DiskFull, DownloadCancelled, HubUnreachable, Offline
from models.inventory import Inventory, hash_file
from models.partfile import PartFile, disk_error
from models.waiting import Waiting

FILES_AT_ONCE = 3
SPARE_BYTES = 32 << 20
"""Room left on the disk for records, logs and the rest of the system."""
_REPORT_SECONDS = 0.05
_LEAVE_SECONDS = 2.0
"""How long a cancelled download waits for its threads. One stuck in a dead connection is left behind: it reads the
cancel flag before it writes anything, so it can do no harm."""

Phase = Literal["waiting", "checking", "downloading"]


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """How far one file is. `index` and `count` place it among the files of this download."""

    name: str
    phase: Phase
    done_bytes: int
    total_bytes: int | None
    index: int
    count: int
    source: str | None = None
    """`hub` or `mirror`, once it is known."""


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
            _check_room(models_dir, sum(_bytes_to_come(inventory, piece) for piece in absent))
        _Crew(inventory, offline).run(missing, progress, notice, cancelled)
    return [inventory.location(file.pieces()[0]) for file in files]


class _Crew:
    """The threads of one download, and the queue over which they report to the caller's thread."""

    def __init__(self, inventory: Inventory, offline: bool) -> None:
        self._inventory = inventory
        self._offline = offline
        self._stop = threading.Event()
        self._reports: queue.SimpleQueue[DownloadProgress | str | ModelFile | BaseException] = (
            queue.SimpleQueue()
        )

    def run(
        self,
        files: Sequence[ModelFile],
        progress: Callable[[DownloadProgress], None],
        notice: Callable[[str], None],
        cancelled: Callable[[], bool],
    ) -> None:
        jobs = iter([_Job(self, file, index, len(files)) for index, file in enumerate(files)])
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
            self._stop.set()
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
                report = self._reports.get(timeout=0.1)
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

    def _work(self, jobs: Iterator[_Job], take: threading.Lock) -> None:
        while not self._stop.is_set():
            with take:
                job = next(jobs, None)
            if job is None:
                return
            try:
                job.run()
                self._reports.put(job.file)
            except BaseException as error:  # noqa: BLE001 - handed to the caller's thread, which raises it
                self._reports.put(error)
                return


class _Job:
    """One file: lock, adopt or fetch, verify, record. Runs in a thread of the crew."""

    def __init__(self, crew: _Crew, file: ModelFile, index: int, count: int) -> None:
        self.file = file
        self._crew = crew
        self._inventory = crew._inventory
        self._place = (index, count)
        self._source: str | None = None
        self._reported_at = 0.0
        self._waiting = Waiting(cancelled=self._stopped, notice=self._notice)

    def run(self) -> None:
        self._in_place = self._inventory.location(self.file)
        try:
            self._in_place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._alone():
                if self._inventory.path_of(self.file) is None and not self._adopt():
                    self._fetch()
        except OSError as error:
            raise disk_error(error, self._in_place) from None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the file's lock. The system drops it when a process dies, so a stale one cannot exist."""
        lock = FileLock(self._inventory.lock_location(self.file), mode=0o600)
        waiting = False
        while True:
            try:
                lock.acquire(timeout=0)
                break
            except Timeout:
                if not waiting:
                    self._notice(f"another paceline is fetching {self._in_place.name}; waiting for it")
                    waiting = True
                self._report("waiting", 0, self.file.bytes)
                self._waiting.sleep(0.2)
        try:
            yield
        finally:
            lock.release()

    def _adopt(self) -> bool:
        """A file that is there without a record (copied in, or a kill came just before the record): hash it once."""
        path, expected = self._in_place, self.file.sha256
        if expected is None or not path.is_file() or self.file.bytes not in (None, path.stat().st_size):
            return False
        self._notice(f"{path.name} is already there; checking it")
        size = path.stat().st_size
        sha256 = hash_file(
            path, progress=lambda done: self._report("checking", done, size), cancelled=self._stopped
        )
        if sha256 != expected:
            self._notice(f"{path.name} does not have the expected SHA-256; fetching it again")
            return False
        self._record(self.file, "already there")
        return True

    def _fetch(self) -> None:
        if self._crew._offline:
            raise Offline(
                f"{self._in_place.name} is not in {self._inventory.models_dir} and going online is switched off; pull it once while online"
            )
        from models import hub  # costs a third of a second, and most runs find their files on disk

        file = self.file
        try:
            file = hub.resolve(file, self._waiting)
            self._source = "hub"
        except HubUnreachable as error:
            self._turn_to_mirror(error)
        assert file.bytes is not None
        assert file.sha256 is not None
        _check_room(self._inventory.models_dir, _bytes_to_come(self._inventory, file))
        path = self._inventory.part_location(file)
        with PartFile(path, bytes_expected=file.bytes, sha256=file.sha256, parts=file.mirror) as part:
            part.resume(
                progress=lambda done: self._report("checking", done, file.bytes), cancelled=self._stopped
            )
            try:
                self._bring(file, part)
            except ChecksumMismatch as error:
                if file.mirror is None:
                    raise  # nothing of it could be kept: a person should decide on fetching it all again
                self._notice(str(error).partition(";")[0] + "; fetching it once more")
                self._bring(file, part)
            part.finish(self._in_place)
        self._record(file, self._source or "hub")

    def _bring(self, file: ModelFile, part: PartFile) -> None:
        from models import hub

        def arrived(pending: int = 0) -> None:
            self._report("downloading", min(part.length + pending, part.bytes_expected), file.bytes)

        if self._source == "hub":
            try:
                hub.fetch(file, part, arrived=arrived, waiting=self._waiting)
            except HubUnreachable as error:
                self._turn_to_mirror(error)
        if self._source == "mirror":
            mirror.fetch(file, part, arriving=arrived, waiting=self._waiting)

    def _turn_to_mirror(self, error: HubUnreachable) -> None:
        if self.file.mirror is None:
            raise error
        self._source = "mirror"
        self._notice(
            f"{str(error).partition(';')[0]}; using the mirror for {self._in_place.name}, checked by the same SHA-256"
        )

    def _record(self, file: ModelFile, origin: str) -> None:
        assert file.sha256 is not None
        self._inventory.record(
            self._in_place, file.sha256, origin=origin, repo=file.repo, revision=file.revision
        )
        self._report("downloading", file.bytes or 0, file.bytes, always=True)

    def _stopped(self) -> bool:
        return self._crew._stop.is_set()

    def _notice(self, text: str) -> None:
        self._crew._reports.put(text)

    def _report(self, phase: Phase, done: int, total: int | None, *, always: bool = False) -> None:
        now = time.monotonic()
        if always or now - self._reported_at >= _REPORT_SECONDS:
            self._reported_at = now
            index, count = self._place
            self._crew._reports.put(
                DownloadProgress(self._in_place.name, phase, done, total, index, count, self._source)
            )


def _offline_by_environment() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def _make_writable(models_dir: Path) -> None:
    try:
        models_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=models_dir):
            pass
    except OSError as error:
        raise disk_error(error, models_dir / "model") from None


def _bytes_to_come(inventory: Inventory, file: ModelFile) -> int:
    """What the file will still take. The mirror also needs room for the wheel of one part while it is unpacked."""
    if file.bytes is None:
        return 0
    left = max(0, file.bytes - inventory.partial_bytes(file))
    return left + (min(left, file.mirror.part_bytes) if file.mirror else 0)


def _check_room(models_dir: Path, needed: int) -> None:
    free = shutil.disk_usage(models_dir).free
    if needed + SPARE_BYTES > free and needed:
        raise DiskFull(
            f"{needed / 1e9:.2f} GB are to be fetched and {models_dir} has {free / 1e9:.2f} GB free; "
            f"free {(needed + SPARE_BYTES - free) / 1e9:.2f} GB or choose another models directory"
        )
