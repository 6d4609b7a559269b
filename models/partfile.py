"""The `.part` file a download grows in: append-only, hashed as it grows, renamed only when its SHA-256 is right.

Where the catalogue knows the hashes of a file's parts, each part is checked when its last byte arrives, so a wrong part
is named and thrown away alone instead of costing the whole file. After kill -9 the bytes on disk are hashed again and
the download continues behind the last good one. Both sources (hub and mirror) write through this class and nothing else
does. Disk errors become DiskFull or NotWritable here.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from models.catalogue import Mirror
from models.errors import ChecksumMismatch, DiskFull, DownloadCancelled, ModelsError, NotWritable

_READ_BYTES = 1 << 20


class PartFile:
    """Use as a context manager; the file stays on disk on every exit but `finish`."""

    def __init__(self, path: Path, *, bytes_expected: int, sha256: str, parts: Mirror | None) -> None:
        self.path = path
        self.bytes_expected = bytes_expected
        self._sha256 = sha256
        self._part_bytes = parts.part_bytes if parts else bytes_expected
        self._part_sha256 = parts.part_sha256 if parts else (sha256,)
        self.length = 0
        self._whole = hashlib.sha256()
        self._part = hashlib.sha256()
        # Length and state of the whole-file hash at the end of the last complete part: the place to fall back to.
        self._good = (0, self._whole.copy())

    def __enter__(self) -> Self:
        with _disk_errors(self.path):
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
            # Unbuffered: what append() has returned from survives a kill of this process.
            self._file = os.fdopen(descriptor, "r+b", buffering=0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def resume(self, *, progress: Callable[[int], None], cancelled: Callable[[], bool]) -> int:
        """Hash what an earlier run left, keep it up to the last good byte, and return that length."""
        size = os.fstat(self._file.fileno()).st_size
        if size > self.bytes_expected:
            self._file.truncate(0)
            return 0
        while self.length < size:
            if cancelled():
                raise DownloadCancelled("the download was cancelled")
            block = self._file.read(min(_READ_BYTES, size - self.length))
            if not block or not self._absorb(block):
                self.rewind()
                break
            progress(self.length)
        return self.length

    def append(self, data: bytes) -> None:
        """Write the next bytes. Raises ChecksumMismatch, with the bad part thrown away, when a part ends wrong."""
        if self.length + len(data) > self.bytes_expected:
            self.rewind()
            raise ChecksumMismatch(
                f"{self.path.name}: more bytes arrived than the file has; {self._advice()}"
            )
        with _disk_errors(self.path):
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]
        if not self._absorb(data):
            number, count = self._good[0] // self._part_bytes + 1, len(self._part_sha256)
            self.rewind()
            what = f"part {number} of {count} has" if count > 1 else "the file has"
            raise ChecksumMismatch(
                f"{self.path.name}: {what} the wrong SHA-256 and was thrown away; {self._advice()}"
            )

    def rewind(self) -> None:
        """Fall back to the end of the last complete part (of a file without known parts: to nothing)."""
        self.length, whole = self._good
        self._whole, self._part = whole.copy(), hashlib.sha256()
        with _disk_errors(self.path):
            self._file.truncate(self.length)
            self._file.seek(self.length)

    def rewind_to_start(self) -> None:
        """Forget everything, for a source that can only begin at the beginning."""
        self._good = (0, hashlib.sha256())
        self.rewind()

    def finish(self, destination: Path) -> None:
        """Make the complete, right file durable under its real name."""
        if self.length != self.bytes_expected or self._whole.hexdigest() != self._sha256:
            # Parts that are each right but a whole that is not: the catalogue contradicts itself.
            raise ChecksumMismatch(
                f"{destination.name} does not have the expected SHA-256; remove it and pull again"
            )
        with _disk_errors(self.path):
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self.path, destination)
            _sync_directory(destination.parent)

    def _absorb(self, data: bytes) -> bool:
        """Take bytes into the hashes, part by part; False at the first part that is wrong."""
        view = memoryview(data)
        while view:
            start = self._good[0]
            end = min(start + self._part_bytes, self.bytes_expected)
            piece = view[: end - self.length]
            self._whole.update(piece)
            self._part.update(piece)
            self.length += len(piece)
            view = view[len(piece) :]
            if self.length == end:
                if self._part.hexdigest() != self._part_sha256[start // self._part_bytes]:
                    return False
                self._good = (end, self._whole.copy())
                self._part = hashlib.sha256()
        return True

    def _advice(self) -> str:
        return "pull again, and if it happens again the source is at fault"


class _disk_errors:
    """Turns OSError from the disk into the package's own errors."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise disk_error(error, self._path) from None


def disk_error(error: OSError, path: Path) -> ModelsError:
    """The package's error for a failed disk operation near `path`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(
            f"the disk of {path.parent} is full; free some room and pull again, what arrived is kept"
        )
    return NotWritable(
        f"{path.parent} cannot be written ({error.strerror or error}); check its permissions or choose another models directory"
    )


def _sync_directory(directory: Path) -> None:
    if os.name == "nt":
        return  # Windows cannot open a directory; its rename is durable with the file
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
