"""What the installed llama.cpp is and which GPUs it sees, asked in a process of its own.

A library built for another CPU ends its process with an illegal instruction, and a broken GPU driver may abort it.
Neither may take along the command that was meant to say so. The memory a driver takes goes with the process, too.
Run as `python -m app.engine_build` it is that process and prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SECONDS = 60.0
"""A first start of a GPU driver may take long."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A device llama.cpp can use."""

    name: str
    description: str
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class EngineBuild:
    """The build, or what keeps it from starting."""

    version: str = ""
    system_info: str = ""
    """llama.cpp's own line: backends and CPU features."""
    offloads: bool = False
    """Built with support for some GPU, there or not."""
    gpus: tuple[Gpu, ...] = ()
    fault: str | None = None


def ask_engine_build() -> EngineBuild:
    """Start the process and read its answer. Never raises: a library that cannot be asked is an answer."""
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "app.engine_build"], env={**os.environ, "PYTHONPATH": path}, timeout=SECONDS,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
        )
    except subprocess.TimeoutExpired:
        return EngineBuild(fault=f"it does not answer within {SECONDS:.0f} seconds")
    except OSError as error:
        return EngineBuild(fault=f"it cannot be started ({error.strerror})")
    return read_answer(done.returncode, done.stdout, done.stderr)


def read_answer(returncode: int, out: str, err: str) -> EngineBuild:
    """The answer of a process that ended like this."""
    if returncode in (-getattr(signal, "SIGILL", 4), 0xC000001D):
        return EngineBuild(fault="it was built for another CPU (illegal instruction)")
    try:
        data: Mapping[str, Any] = json.loads(out.splitlines()[-1])
        gpus = tuple(Gpu(**gpu) for gpu in data.get("gpus", ()))
        return EngineBuild(**{**data, "gpus": gpus})
    except (ValueError, IndexError, TypeError, AttributeError):
        last = next((line.strip() for line in reversed(err.splitlines()) if line.strip()), "")
        return EngineBuild(fault=f"it ends with exit code {returncode}{': ' + last[:200] if last else ''}")


def _answer() -> EngineBuild:
    try:
        from engine.llama import binding

        gpus = tuple(Gpu(d.name, d.description, d.free_bytes, d.total_bytes) for d in binding.devices())
        return EngineBuild(
            binding.VERSION, binding.system_info(), bool(binding.lib.llama_supports_gpu_offload()), gpus
        )
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        return EngineBuild(fault=f"it cannot be loaded ({text[:200]})")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(_answer())) + "\n")
