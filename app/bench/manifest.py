"""What a measurement was made with: a number without its machine and versions says nothing."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from app import __version__
from app.bench.prompts import BenchPrompt
from app.engine_build import ask_engine_build
from app.sanitize import sanitize

LIBRARIES = ("llama-cpp-python", "numpy")


def manifest(models: Mapping[str, Mapping[str, Any]], prompts: Sequence[BenchPrompt], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Versions, build, machine, model files by name, prompts, settings and the command, as JSON values."""
    build = ask_engine_build()
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": ["paceline", *sys.argv[1:]],
        "versions": {
            "paceline": __version__,
            "python": platform.python_version(),
            **{name: _version(name) for name in LIBRARIES},
        },
        "build": {"llama.cpp": build.version, "features": build.system_info, "offloads": build.offloads},
        "machine": {
            "system": platform.platform(),
            "cpu": cpu_name(),
            "cores": psutil.cpu_count(logical=False),
            "logical_cores": psutil.cpu_count(),
            "memory_bytes": psutil.virtual_memory().total,
            "gpus": [{"name": gpu.name, "description": gpu.description, "bytes": gpu.total_bytes} for gpu in build.gpus],
            "power": _power(),
            "load_average": _load_average(),
        },
        "models": {name: dict(model) for name, model in models.items()},
        "prompts": {"count": len(prompts), "sha256": prompts_hash(prompts)},
        "settings": in_json(dict(settings)),
    }


def in_json(value: Any) -> Any:
    """With what JSON has no number for (a bias of -inf) as text, which `float` takes back."""
    if isinstance(value, Mapping):
        return {key: in_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [in_json(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def prompts_hash(prompts: Sequence[BenchPrompt]) -> str:
    """SHA-256 of all that is asked, in its order."""
    return hashlib.sha256(json.dumps([asdict(prompt) for prompt in prompts]).encode()).hexdigest()


def file_facts(path: Path, sha256: str | None) -> dict[str, Any]:
    """Path, size and SHA-256 of a model file, computed if it is not known."""
    if sha256 is None:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return {"path": str(path), "bytes": path.stat().st_size, "sha256": sha256}


def differences(one: Mapping[str, Any], other: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    """What two manifests do not agree in, of `keys` such as `machine.cpu`, as `machine.cpu: A / B`."""
    found = []
    for key in keys:
        values = [_at(document, key) for document in (one, other)]
        if values[0] != values[1]:
            found.append(f"{key}: {_short(values[0])} / {_short(values[1])}")
    return found


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


def _at(document: Any, key: str) -> Any:
    for part in key.split("."):
        document = document.get(part) if isinstance(document, Mapping) else None
    return document


def _short(value: Any) -> str:
    text = sanitize(value if isinstance(value, str) else json.dumps(value)).replace("\n", " ")
    return text if len(text) <= 60 else f"{text[:57]}..."


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _power() -> str | None:
    """`mains` or `battery`: many laptops are slower on the latter. None where there is no battery to ask."""
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return None if battery is None else "mains" if battery.power_plugged else "battery"


def _load_average() -> float | None:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
