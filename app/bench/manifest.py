"""What a measurement was made with: a number without its machine and versions says nothing."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from app import __version__

LIBRARIES = ("llama-cpp-python", "numpy")


def manifest(models: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Versions, machine, model files, settings and the command, as JSON values."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": ["paceline", *sys.argv[1:]],
        "versions": {
            "paceline": __version__,
            "python": platform.python_version(),
            **{name: _version(name) for name in LIBRARIES},
        },
        "machine": {
            "system": platform.platform(),
            "cpu": cpu_name(),
            "cores": psutil.cpu_count(logical=False),
            "logical_cores": psutil.cpu_count(),
            "memory_bytes": psutil.virtual_memory().total,
            "load_average": _load_average(),
        },
        "models": {role: _with_size(model) for role, model in models.items()},
        "settings": dict(settings),
    }


def cpu_name() -> str:
    """The processor's own name, where the system tells it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    if sys.platform == "darwin":
        with suppress(OSError, subprocess.SubprocessError):
            return subprocess.run(
                ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=True, timeout=5
            ).stdout.strip()
    return platform.processor() or platform.machine()


def _with_size(model: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if model is None else {**model, "bytes": Path(model["path"]).stat().st_size}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _load_average() -> float | None:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
