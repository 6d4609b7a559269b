"""What this machine has: memory, cores, disk, and the number formats its CPU keeps a repacked copy of.

The only probing code of this package. GPU devices are not probed here: llama.cpp knows them, so the engine lists them
and the caller passes them in as values.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as llama.cpp reports it."""

    name: str
    total_bytes: int
    free_bytes: int
    unified: bool = False
    """Its memory is the machine's own (Apple silicon, integrated GPUs)."""


@dataclass(frozen=True, slots=True)
class Hardware:
    ram_bytes: int
    available_bytes: int
    physical_cores: int
    logical_cores: int
    disk_free_bytes: int
    devices: tuple[Device, ...] = ()
    repacked_types: frozenset[str] = frozenset()
    """Weights of these formats exist twice when they run on the CPU (ggml's CPU_REPACK buffers)."""


def probe(models_dir: Path, devices: Sequence[Device] = ()) -> Hardware:
    """This machine now. `models_dir` need not exist yet; its nearest parent's disk counts."""
    memory = psutil.virtual_memory()
    here = next(path for path in (models_dir, *models_dir.absolute().parents) if path.exists())
    logical = os.cpu_count() or 1
    return Hardware(
        ram_bytes=memory.total,
        available_bytes=min(memory.available, _container_limit() or memory.available),
        physical_cores=psutil.cpu_count(logical=False) or logical,
        logical_cores=logical,
        disk_free_bytes=shutil.disk_usage(here).free,
        devices=tuple(devices),
        repacked_types=_repacked_types(),
    )


def _repacked_types() -> frozenset[str]:
    """The choices of ggml's repack.cpp; without the CPU's flags (macOS, Windows) those of a current machine."""
    flags = _cpu_flags()
    if platform.machine().lower() in {"arm64", "aarch64"}:
        if flags and not flags & {"asimddp", "i8mm"}:
            return frozenset()
        return frozenset({"Q4_0", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "IQ4_NL", "MXFP4"})
    if flags and "avx2" not in flags:
        return frozenset()
    common = frozenset({"Q4_0", "Q4_K", "IQ4_NL", "MXFP4"})
    return common | {"Q2_K"} if "avx512f" in flags else common


def _cpu_flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        if line.lower().startswith(("flags", "features")):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def _container_limit() -> int | None:
    """What a container's memory limit still leaves, which the machine's own figures do not show."""
    root = Path("/sys/fs/cgroup")
    try:
        limit = (root / "memory.max").read_text(encoding="ascii").strip()
        used = int((root / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return max(0, int(limit) - used) if limit.isdigit() else None
