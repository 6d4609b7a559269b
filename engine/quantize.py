"""Writing a GGUF in another number format with llama.cpp's quantiser, in a process of its own.

Policy: the result is whole or absent. It grows beside its destination under a name that no other part takes for a
model, and is renamed at the end; whatever stops the work (cancelling, an abort() in llama.cpp, a full disk, the end of
this process) leaves at most that file, which the next run overwrites. Before anything is written the caller is told how
big the result will be and may refuse. llama.cpp's log lines go to the log file only.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from engine.child import child, redirect_output
from engine.errors import BadRequest, EngineDied, QuantizeFailed, WorkCancelled

UNFINISHED = ".quantising"
_TENSOR = re.compile(r"\[\s*(\d+)/\s*(\d+)\]")
_SIZE = re.compile(r"(model|quant) size\s+=\s+([\d.]+) MiB")
_ERROR = 4


def quantize(
    source: Path, destination: Path, type_name: str, *, threads: int = 0, log_file: Path | None = None,
    on_size: Callable[[int | None], None] = lambda _: None,
    on_progress: Callable[[float], None] = lambda _: None,
    cancelled: Callable[[], bool] = lambda: False,
    check: Callable[[Path], None] = lambda _: None,
) -> None:
    """Write `destination` from `source` (of a split GGUF, its first piece) in the format `type_name`.

    on_size gets the bytes of the result (None: not known) before anything is written; what it raises ends the work.
    check gets the finished file before it is given its name; what it raises does too. Raises BadRequest for an unknown
    format, QuantizeFailed with llama.cpp's reason, WorkCancelled soon after `cancelled` turns true.
    """
    file_type = _file_type(type_name)
    part = destination.with_name(destination.name + UNFINISHED)
    try:
        with child("paceline quantise", _work, source, part, file_type, threads, log_file) as process:
            for kind, value in process.reports(cancelled):
                if kind == "size":
                    on_size(value)
                    process.send("go on")
                elif kind == "progress":
                    on_progress(value)
                elif kind == "failed":
                    raise QuantizeFailed(f"llama.cpp cannot quantise {source.name}: {value}")
                else:
                    break
        check(part)
        os.replace(part, destination)
    except WorkCancelled:
        raise WorkCancelled("quantising was cancelled; nothing was left behind") from None
    except EngineDied as error:
        raise QuantizeFailed(f"cannot quantise {source.name}: {error}") from None
    finally:
        part.unlink(missing_ok=True)


def _file_type(name: str) -> int:
    from engine.llama.quantizer import NEEDS_IMATRIX, file_types

    known = file_types()
    if name.upper() in NEEDS_IMATRIX:
        raise BadRequest(f"{name} needs an importance matrix, which cannot be made here; take Q2_K, IQ3_S or larger")
    if name.upper() not in known:
        raise BadRequest(f"there is no format {name}; there are {', '.join(sorted(known))}")
    return known[name.upper()]


# ---- in the child


def _work(connection: Connection, source: Path, part: Path, file_type: int, threads: int, log_file: Path | None) -> None:
    """Find out the size, ask to go on, quantise."""
    from engine.llama import quantizer

    with redirect_output(log_file) as log:
        listener = _Listener(connection, log)
        if not quantizer.run(source, part, file_type, threads=threads, dry_run=True, on_log=listener.log):
            listener.send("failed", listener.reason)
            return
        listener.send("size", _size(listener.sizes, source))
        try:
            connection.recv()
        except EOFError:  # refused
            return
        listener.counting = True
        if quantizer.run(source, part, file_type, threads=threads, dry_run=False, on_log=listener.log):
            _sync(part)
            listener.send("done", None)
        else:
            listener.send("failed", listener.reason)


class _Listener:
    """Turns llama.cpp's log into progress, sizes and a reason."""

    def __init__(self, connection: Connection, log: IO[str]) -> None:
        self._connection = connection
        self._log = log
        self.counting = False
        self.reason = "no reason given"
        self.sizes: dict[str, float] = {}

    def send(self, kind: str, value: Any) -> None:
        try:
            self._connection.send((kind, value))
        except OSError:  # the owner is gone, and with it the reason to go on
            os._exit(1)

    def log(self, level: int, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a full disk has its own way of being noticed
            self._log.write(text)
        if level == _ERROR and text.strip(" =\n"):
            self.reason = " ".join(text.split()).rpartition("failed to quantize: ")[2]
            if "iostream error" in self.reason:
                self.reason = "the result cannot be written; is the disk full?"
        if size := _SIZE.search(text):
            self.sizes[size[1]] = float(size[2]) * 2**20
        if self.counting and (tensor := _TENSOR.match(text)):
            self.send("progress", int(tensor[1]) / max(int(tensor[2]), 1))


def _size(sizes: dict[str, float], source: Path) -> int | None:
    """Weights as llama.cpp counted them, and the header, which stays as it is."""
    if set(sizes) != {"model", "quant"}:
        return None
    header = max(source.stat().st_size - sizes["model"], 0)
    return int(sizes["quant"] + header)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
