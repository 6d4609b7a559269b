"""What the CPU can do that matters to llama.cpp, against what the build uses of it."""

from __future__ import annotations

import re
from pathlib import Path

FEATURES = {"AVX": "avx", "AVX2": "avx2", "FMA": "fma", "F16C": "f16c", "AVX512": "avx512f", "NEON": "asimd", "DOTPROD": "asimddp"}
"""llama.cpp's name for a feature to the kernel's."""
ESSENTIAL = ("AVX2", "FMA", "NEON")
"""Without these a build is several times slower than the CPU allows."""


def cpu_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The features above that this CPU has; empty where the system does not list them."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    flags = set(match[1].split()) if match else set()
    return frozenset(name for name, flag in FEATURES.items() if flag in flags)


def build_features(system_info: str) -> frozenset[str]:
    """The features that llama.cpp's own line says it uses."""
    return frozenset(name for name in FEATURES if re.search(rf"\b{name} = 1\b", system_info))


def unused_features(cpu: frozenset[str], build: frozenset[str]) -> list[str]:
    """What the CPU has and the build, to its great loss, does not use."""
    return [name for name in ESSENTIAL if name in cpu and name not in build]
