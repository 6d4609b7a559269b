"""Which process is writing a reply, told apart from a later one that got the same process id by its start time."""

from __future__ import annotations

import os
from functools import lru_cache

_TOLERANCE = 5.0
"""Seconds. Start times are worked out from a clock that may be set meanwhile; process ids do not come round that fast."""


def this_writer() -> str:
    """This process as the store notes it: `pid:start`, start in seconds since 1970."""
    return _described(os.getpid())


def is_alive(writer: str | None) -> bool:
    """Whether the process that `this_writer` described still runs."""
    import psutil

    try:
        pid, started = (writer or "").split(":")
        process = psutil.Process(int(pid))
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - float(started)) < _TOLERANCE
    except psutil.AccessDenied:
        return True
    except (ValueError, psutil.NoSuchProcess):
        return False


@lru_cache(maxsize=1)
def _described(pid: int) -> str:
    import psutil

    return f"{pid}:{psutil.Process(pid).create_time():.3f}"
