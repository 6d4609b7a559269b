"""llama.cpp's own figures for a pair that is on disk, where the plan's formula leaves doubt."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.plan import Figures
from engine import EngineError, LoadConfig
from engine.buffer_sizes import buffer_sizes


def exact_sizes(target: Path, draft: Path | None, settings: Mapping[str, Any]) -> list[Figures] | None:
    """For the target, and for the draft if there is one, bytes of caches and of compute buffers on host and devices.

    settings: LoadConfig fields. None when llama.cpp cannot tell: whether the files can be loaded is for the load to say.
    """
    try:
        sizes = buffer_sizes(LoadConfig(target, draft, **settings))
    except EngineError:
        return None
    return [(size.caches, size.host_compute, size.device_compute) for size in sizes if size]
