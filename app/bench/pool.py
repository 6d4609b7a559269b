"""The engines of a run, each in a process of its own: one for every pair of files and settings that are compared.

All stay loaded side by side where memory allows it, so that configurations can take turns reply by reply; a process
that waits uses no CPU time. Where there is no room for one more, the one unused longest makes way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from engine import EngineProcess, LoadFailed

GROWTH, SPARE = 2.2, 1 << 30
"""A loaded model takes up to its file, a repacked copy and some caches; beyond that stays free."""


@dataclass(frozen=True, slots=True)
class EngineKey:
    """What one process has loaded."""

    target: Path
    draft: Path | None
    batch: int | None = None
    threads: int | None = None
    copy: int = 0
    """Of several alike, which."""

    @property
    def bytes(self) -> int:
        """Of the files."""
        return sum(path.stat().st_size for path in (self.target, self.draft) if path)


class EnginePool:
    """Hands out loaded engines. A context manager; on leaving all processes end."""

    def __init__(self, load: Callable[[EngineKey], EngineProcess], device_bytes: Callable[[], int | None] = lambda: None) -> None:
        """`load` starts a process; `device_bytes` tells what all GPUs together have in use, None without any."""
        self._load = load
        self._device_bytes = device_bytes
        self._engines: OrderedDict[EngineKey, EngineProcess] = OrderedDict()
        self.loaded: dict[EngineKey, dict[str, Any]] = {}
        """What each load took: seconds, bytes of device memory, the engine's notices."""
        self.made_way = 0
        """How often an engine had to be closed for another."""

    def __getitem__(self, key: EngineKey) -> EngineProcess:
        """The engine, loaded now if it is not. Raises EngineError as loading does."""
        if key in self._engines and not self._engines[key].alive:
            self.discard(key)
        if key not in self._engines:
            self._make_room(key)
            self._engines[key] = self._open(key)
        self._engines.move_to_end(key)
        return self._engines[key]

    def discard(self, key: EngineKey) -> None:
        """End this one; it is loaded again when it is asked for again."""
        if engine := self._engines.pop(key, None):
            engine.close()

    def cancel(self) -> None:
        """Stop whatever is being decoded; safe in a signal handler."""
        for engine in list(self._engines.values()):
            engine.cancel()

    def close(self) -> None:
        for key in list(self._engines):
            self.discard(key)

    def __enter__(self) -> EnginePool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _open(self, key: EngineKey) -> EngineProcess:
        before = self._device_bytes()
        try:
            engine = self._load(key)
        except LoadFailed:
            if not self._engines:
                raise
            self._evict_all()  # a GPU's memory is not psutil's to tell: perhaps it is full
            before = self._device_bytes()
            engine = self._load(key)
        after = self._device_bytes()
        self.loaded[key] = {
            "load_seconds": round(engine.load_seconds, 2), "context": engine.context, "notices": list(engine.notices),
            "device_bytes": None if before is None or after is None else max(0, after - before),
        }
        return engine

    def _make_room(self, key: EngineKey) -> None:
        while self._engines and not has_room(key):
            self.made_way += 1
            self.discard(next(iter(self._engines)))

    def _evict_all(self) -> None:
        self.made_way += len(self._engines)
        self.close()


def has_room(key: EngineKey) -> bool:
    """Whether the memory that is free now will hold one more engine."""
    return psutil.virtual_memory().available >= GROWTH * key.bytes + SPARE
