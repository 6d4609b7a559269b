"""The only import of llama_cpp: start-up of the native library, its log lines, its devices.

llama_cpp is imported on first use of this module, never by `import engine`, so that `paceline --help` stays
quick. Its own log callback prints to stderr and would break a terminal UI; ours replaces it before any model
is touched.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import llama_cpp
from llama_cpp import llama_cpp as lib
from llama_cpp.llama_grammar import json_schema_to_gbnf

VERSION: str = llama_cpp.__version__
__all__ = [
    "VERSION", "CancelFlag", "Device", "captured_stderr", "count_native", "devices", "json_schema_to_gbnf", "lib", "log_lines", "log_to",
    "native_seconds", "start", "system_info", "take_complaints",
]

LOG_LIMIT_BYTES = 4 << 20
"""The log starts afresh beyond this, so that months of use cannot fill a disk."""

_log: IO[str] | None = None
_recent: list[str] = []
_kept: list[str] | None = None
_started = False


@lib.llama_log_callback  # type: ignore[untyped-decorator]  # a ctypes function type
def _write_log(level: int, text: bytes | None, _data: Any) -> None:
    line = (text or b"").decode("utf-8", errors="replace")
    if level >= 3 and line.strip():  # warnings and errors; kept so that a failed load can say why
        _recent.append(line.strip())
        del _recent[:-20]
    if _kept is not None:
        _kept.append(line)
    if _log is not None:
        try:
            _log.write(line)
        except (OSError, ValueError):  # a full disk must not stop a reply
            _recent[:] = _recent[-20:]


def start() -> None:
    """Initialise llama.cpp once per process, with its log lines caught."""
    global _started
    if not _started:
        lib.llama_log_set(_write_log, None)
        lib.llama_backend_init()
        _started = True


def log_to(path: Path | None) -> None:
    """Append llama.cpp's log lines to `path` (mode 0600), or drop them. An unwritable path drops them too."""
    global _log
    if _log is not None:
        _log.close()
    _log = None
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = not path.exists() or path.stat().st_size > LOG_LIMIT_BYTES
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | (os.O_TRUNC if fresh else os.O_APPEND), 0o600)
        _log = os.fdopen(descriptor, "w", buffering=1, encoding="utf-8", errors="replace")
    except OSError:
        _log = None


@contextmanager
def log_lines() -> Iterator[list[str]]:
    """Keeps llama.cpp's log lines, beside where they go anyway; the list grows as they come."""
    global _kept
    start()
    _kept = lines = list[str]()
    try:
        yield lines
    finally:
        _kept = None


def take_complaints() -> str:
    """The last warning or error llama.cpp logged since the previous call; '' if none."""
    last = next((line for line in reversed(_recent) if "error" in line.lower() or "fail" in line.lower()), "")
    last = last or (_recent[-1] if _recent else "")
    _recent.clear()
    return last


@contextmanager
def captured_stderr() -> Iterator[list[str]]:
    """Keeps what native code prints past its log, straight to the terminal's file descriptor; afterwards the list
    holds the lines."""
    lines: list[str] = []
    with tempfile.TemporaryFile() as file:
        try:
            terminal = os.dup(2)
        except OSError:  # no stderr at all
            yield lines
            return
        try:
            os.dup2(file.fileno(), 2)
            yield lines
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
            file.seek(0)
            lines += file.read().decode("utf-8", errors="replace").splitlines()


class CancelFlag:
    """A byte that llama.cpp's abort callback reads without Python and without the GIL.

    ggml polls the callback after every graph node from a compute thread; a Python callback there costs about
    a thousand GIL hand-overs per decode. The C library's `strlen` has the right shape: given a pointer to our
    NUL-terminated buffer it returns 0 while the first byte is 0 and 1 once it is set, which is what a
    `bool (*)(void *)` needs. The buffer may be shared memory, so another process can raise the flag.
    """

    def __init__(self, buffer: Any | None = None) -> None:
        """`buffer`: a ctypes array of two zero bytes (possibly shared); None makes a private one."""
        self.buffer = (ctypes.c_char * 2)() if buffer is None else buffer
        libc = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
        self.callback = ctypes.cast(libc.strlen, lib.ggml_abort_callback)
        self.address = ctypes.c_void_p(ctypes.addressof(self.buffer))

    def set(self) -> None:
        """Ask the running decode, and the loop around it, to stop."""
        self.buffer[0] = b"\x01"

    def clear(self) -> None:
        self.buffer[0] = b"\x00"

    def is_set(self) -> bool:
        return bool(self.buffer[0] != b"\x00")


@dataclass(frozen=True, slots=True)
class Device:
    """A compute device llama.cpp can offload to; memory in bytes."""

    name: str
    description: str
    free_bytes: int
    total_bytes: int


def devices() -> list[Device]:
    """The GPUs of this build, [] for a CPU build. Read through ggml's device registry, which llama_cpp leaves unbound."""
    start()
    from llama_cpp._ggml import libggml

    libggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    libggml.ggml_backend_dev_get.restype = ctypes.c_void_p
    libggml.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    found = []
    for i in range(libggml.ggml_backend_dev_count()):
        device = ctypes.c_void_p(libggml.ggml_backend_dev_get(i))
        if _base_call("ggml_backend_dev_type", ctypes.c_int, device) not in (1, 2):  # GPU, integrated GPU
            continue
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        _base_call("ggml_backend_dev_memory", None, device, ctypes.byref(free), ctypes.byref(total))
        name = _base_call("ggml_backend_dev_name", ctypes.c_char_p, device).decode()
        text = _base_call("ggml_backend_dev_description", ctypes.c_char_p, device).decode()
        found.append(Device(name, text, free.value, total.value))
    return found


def _base_call(name: str, restype: Any, *args: Any) -> Any:
    """Call a function of libggml-base or, in builds that link it in, of libggml."""
    from llama_cpp._ggml import libggml

    function = getattr(libggml, name)
    function.restype = restype
    return function(*args)


_native_seconds = 0.0


def count_native(started: float) -> None:
    """A call into llama.cpp that began at `started` (perf_counter) has returned."""
    global _native_seconds
    _native_seconds += time.perf_counter() - started


def native_seconds() -> float:
    """Seconds this process has spent inside llama.cpp's decode and sampler calls."""
    return _native_seconds


def system_info() -> str:
    """llama.cpp's one line about the build: CPU features and backends."""
    start()
    line: bytes = lib.llama_print_system_info()
    return line.decode("utf-8", errors="replace").strip()
