"""One piece of work in a process of its own: reports come back over a pipe, and it can be killed at any time.

For work that llama.cpp does in one call that nothing can interrupt, or that may end in its abort(). The function runs
as `work(connection, *args)` and sends what it has to say; the pipe's end is its end. Ctrl-C never reaches it, although
a terminal sends it there too: the owner decides.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from engine.errors import EngineDied, WorkCancelled

_POLL_SECONDS = 0.1


class Child:
    """The owner's end."""

    def __init__(self, process: Any, connection: Any) -> None:
        self._process = process
        self._connection = connection

    def send(self, value: Any) -> None:
        """Say something to the process."""
        self._connection.send(value)

    def reports(self, cancelled: Callable[[], bool]) -> Iterator[Any]:
        """What the process sends, until the caller stops reading.

        Raises EngineDied when it ends before that, WorkCancelled soon after `cancelled` turns true.
        """
        while True:
            if cancelled():
                raise WorkCancelled("stopped, as asked")
            if not self._connection.poll(_POLL_SECONDS):
                continue
            try:
                report = self._connection.recv()
            except (EOFError, OSError):
                self._process.join()
                raise EngineDied(f"llama.cpp's process ended ({exit_cause(self._process.exitcode)}); its log may say why") from None
            yield report


@contextmanager
def child(name: str, work: Callable[..., None], *args: Any) -> Iterator[Child]:
    """Start `work`, a function of a module, in a new process. It does not outlive the block."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(work, theirs, *args), name=name, daemon=True)
    try:
        with interrupts_kept_back():
            process.start()
        theirs.close()  # so that the process's death reads as end of file
        yield Child(process, ours)
    finally:
        if process.is_alive():
            process.kill()
        if process.pid is not None:
            process.join()
        ours.close()


def redirect_output(log_file: Path | None) -> IO[str]:
    """In a child, once: all that is printed from now on, by native code too, goes to the log (mode 0600) that is returned,
    or nowhere, as the terminal is the owner's. A log that cannot be written is done without."""
    try:
        if log_file is not None:
            log_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(log_file or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        descriptor = os.open(os.devnull, os.O_WRONLY)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # ggml's abort() would start a debugger on this process
    faulthandler.enable(sys.__stderr__ or sys.stderr)
    return open(descriptor, "a", encoding="utf-8", errors="replace", buffering=1)


def _run(work: Callable[..., None], connection: Connection, *args: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.umask(0o077)
    work(connection, *args)


@contextmanager
def interrupts_kept_back() -> Iterator[None]:
    """Until a process that is started in here has set its own handlers, a Ctrl-C does not reach it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def exit_cause(code: int | None) -> str:
    """How a process ended, for a message."""
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"
