"""What the models have read of each chat, on disk, so that a reopened chat answers without reading its history again.

One file per chat, written and read by the engine, which declines what is not of the loaded files and settings. Good for
speed only: whatever goes wrong here, the history is read again and nobody is told. The folder stays within its budget
(the least recently used go first) and never takes the disk's last room.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from app.paths import writable

MARGIN_BYTES, MARGIN_SHARE = 1 << 30, 0.05
"""Of the disk, left free for everything else: the larger of the two."""
USUAL_BYTES = 256 << 20
"""What a state is taken to need before one was written: 4,096 tokens of a model of a few billion parameters."""
ABANDONED_SECONDS = 3600.0
"""Age at which a half-written file is nobody's work any more: writing one takes seconds."""


class Engine(Protocol):
    """The part of an engine that keeps states."""

    def save_state(self, path: Path) -> int:
        """Write what is in the caches, atomically; the bytes, 0 if there is nothing. Raises EngineError."""

    def restore_state(self, path: Path) -> bool:
        """Fill the caches from the file; False if it does not belong to what is loaded, or is damaged."""


class KvStates:
    """The states in one folder. Several windows may share it: files are replaced whole."""

    def __init__(self, folder: Path, budget_bytes: int) -> None:
        """A budget of 0 keeps nothing."""
        self._folder = folder
        self.budget_bytes = budget_bytes

    def path(self, chat_id: int) -> Path:
        return self._folder / f"{chat_id}.kv"

    def save(self, engine: Engine, chat_id: int) -> bool:
        """Keep what the engine has read of the chat. False if there is no room for it, or nothing to keep. Raises EngineError."""
        if not writable(self._folder):
            return False
        self._tidy()
        path = self.path(chat_id)
        largest = max((size for _, size, _ in self._files()), default=USUAL_BYTES)
        if self.budget_bytes <= 0 or not self._room_for(largest, spare=path):
            path.unlink(missing_ok=True)  # it is of an earlier turn
            return False
        size = engine.save_state(path)
        if not size:
            return False
        if size > self.budget_bytes or self._free() < self._margin():
            path.unlink(missing_ok=True)
            return False
        self._shrink(self.budget_bytes, spare=path)
        return path.exists()

    def restore(self, engine: Engine, chat_id: int) -> bool:
        """Give the engine back what it had read of the chat; False if that is not known any more. Raises EngineError."""
        path = self.path(chat_id)
        if not path.is_file():
            return False
        with suppress(OSError):
            os.utime(path)  # used just now
        return engine.restore_state(path)

    def forget(self, chat_ids: Iterable[int]) -> None:
        """These chats are deleted; so is what was read of them."""
        for chat_id in chat_ids:
            with suppress(OSError):
                self.path(chat_id).unlink(missing_ok=True)

    def _files(self) -> list[tuple[float, int, Path]]:
        """(time of last use, bytes, path), the least recently used first."""
        found = []
        for path in self._folder.glob("*.kv"):
            with suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        return sorted(found)

    def _room_for(self, size: int, spare: Path) -> bool:
        """Whether a file of that size may come, after the others have made room for it."""
        while self._free() < self._margin() + size:
            if not (others := [path for _, _, path in self._files() if path != spare]):
                return False
            others[0].unlink(missing_ok=True)
        return True

    def _shrink(self, most: int, spare: Path) -> None:
        files = self._files()
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= most:
                return
            if path != spare:
                with suppress(OSError):
                    path.unlink()
                total -= size

    def _tidy(self) -> None:
        """Remove what a process that was killed left half written."""
        for part in self._folder.glob(".*.kv.*.part"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > ABANDONED_SECONDS:
                    part.unlink()

    def _free(self) -> int:
        return shutil.disk_usage(self._folder).free

    def _margin(self) -> int:
        return max(MARGIN_BYTES, int(MARGIN_SHARE * shutil.disk_usage(self._folder).total))
