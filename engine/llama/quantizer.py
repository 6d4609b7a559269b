"""llama.cpp's own quantiser, as one call that blocks. For a process of its own: see engine/quantize.py.

It cannot be stopped from outside, it may abort() over a file it dislikes, and it takes llama.cpp's log over while it
runs, which is the only place where it says how far it is.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.llama.binding import lib, start

_PREFIXES = ("LLAMA_FTYPE_MOSTLY_", "LLAMA_FTYPE_ALL_")
NEEDS_IMATRIX = frozenset(["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "Q2_K_S"])
"""Formats so coarse that llama.cpp wants to be told which weights matter, or whose result is poor without."""

OnLog = Callable[[int, str], None]
"""Gets llama.cpp's level (3 warning, 4 error) and a text, which may be part of a line."""


def file_types() -> dict[str, int]:
    """The formats this build can write, by the names people use (Q8_0, Q4_K_M, F16), without those of NEEDS_IMATRIX."""
    names = {
        name.removeprefix(prefix): value
        for name, value in vars(lib).items()
        for prefix in _PREFIXES
        if name.startswith(prefix) and isinstance(value, int)
    }
    return {name: value for name, value in names.items() if name not in NEEDS_IMATRIX}


def run(source: Path, destination: Path, file_type: int, *, threads: int, dry_run: bool, on_log: OnLog) -> bool:
    """Write `destination`, or with `dry_run` only log what would be written. False if llama.cpp failed.

    threads: 0 for all cores.
    """

    def relay(level: int, text: bytes | None, _data: Any) -> None:
        on_log(level, (text or b"").decode("utf-8", errors="replace"))

    start()
    callback = lib.llama_log_callback(relay)
    lib.llama_log_set(callback, None)
    params = lib.llama_model_quantize_default_params()
    params.ftype, params.nthread = file_type, threads
    params.allow_requantize, params.dry_run = True, dry_run
    try:
        code = lib.llama_model_quantize(os.fsencode(source), os.fsencode(destination), ctypes.byref(params))
    finally:
        lib.llama_log_set(_silence, None)
    return bool(code == 0)


@lib.llama_log_callback  # type: ignore[untyped-decorator]  # a ctypes function type
def _silence(_level: int, _text: bytes | None, _data: Any) -> None:
    """What is set while nobody listens: the relay of a run must not be called after it."""
