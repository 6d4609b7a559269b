"""The engine in a child process, with the methods of `Engine`.

A native crash (a malformed file makes ggml call abort()), an out-of-memory kill or a hang ends the child, never the
caller: the next read raises EngineDied with one line, and a new EngineProcess can be made. All memory goes back to
the system with the child. Messages are the dataclasses below over one pipe; cancelling is a byte of shared memory
that llama.cpp itself polls, so it works in the middle of a decode.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any

from engine import errors
from engine.errors import EngineDied, EngineError
from engine.values import GenerationEvent, GenerationRequest, LoadConfig, LoadProgress

HANG_SECONDS = 300.0
"""Silence after which a busy child is given up: a batch of 512 prompt tokens takes minutes on the slowest machines."""
CLOSE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Call:
    """Parent to child: run one of Engine's methods."""

    method: str
    args: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Ready:
    """Child to parent: loaded."""

    notices: tuple[str, ...]
    load_seconds: float
    context: int
    description: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Returned:
    """Child to parent: a call is over."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class Raised:
    """Child to parent: a call failed with an EngineError of this class."""

    kind: str
    text: str


class EngineProcess:
    """A loaded pair in a process of its own. Not thread-safe but for `cancel`."""

    def __init__(
        self, config: LoadConfig, on_progress: Callable[[LoadProgress], bool] | None = None,
        hang_seconds: float = HANG_SECONDS,
    ) -> None:
        """Start the child and load. Raises as Engine, and EngineDied."""
        self.config = config
        self._hang_seconds = hang_seconds
        context = multiprocessing.get_context("spawn")
        self._flag = context.RawArray("c", 2)
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, config, self._flag), name="paceline engine", daemon=True
        )
        self._process.start()
        theirs.close()  # so that the child's end is the only one, and its death reads as end of file
        try:
            ready = self._receive()
            while isinstance(ready, LoadProgress):
                if on_progress is not None and not on_progress(ready):
                    self.cancel()
                ready = self._receive()
        except BaseException:
            self._kill()
            raise
        assert isinstance(ready, Ready)
        self.notices, self.load_seconds, self.context = ready.notices, ready.load_seconds, ready.context
        self._description = ready.description

    @property
    def pid(self) -> int | None:
        """The child's process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def generate(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        """As Engine.generate. Raises EngineDied when the child ends; the events so far stay valid."""
        self._flag[0] = b"\x00"
        self._send(Call("run", (request,)))
        return self._events()

    def _events(self) -> Iterator[GenerationEvent]:
        over = False
        try:
            while not isinstance(event := self._receive(), Returned):
                yield event
            over = True
        except EngineError:
            over = True
            raise
        finally:
            if not over:  # closed early: let the child end the reply, so that the pipe is clean for the next call
                self.cancel()
                with contextlib.suppress(EngineError):
                    while not isinstance(self._receive(), Returned):
                        continue

    def cancel(self) -> None:
        """Stop the reply being decoded; safe from any thread or signal handler."""
        self._flag[0] = b"\x01"

    def count_tokens(self, text: str) -> int:
        return int(self._call("count_tokens", text))

    def forget(self) -> None:
        self._call("forget")

    def describe(self) -> dict[str, Any]:
        return self._description

    def close(self) -> None:
        """Let the child save what it learned and end; kill it if it does not. Safe to call twice."""
        if self._process.is_alive():
            self.cancel()
            with contextlib.suppress(EngineError):
                self._send(Call("close"))
            self._process.join(CLOSE_SECONDS)
        self._kill()

    def _call(self, method: str, *args: Any) -> Any:
        self._send(Call(method, args))
        answer = self._receive()
        assert isinstance(answer, Returned)
        return answer.value

    def _send(self, call: Call) -> None:
        try:
            self._connection.send(call)
        except OSError as error:
            raise EngineDied(self._obituary()) from error

    def _receive(self) -> Any:
        """The child's next message. Raises what it raised, or EngineDied."""
        if not wait([self._connection, self._process.sentinel], self._hang_seconds):
            self._kill()
            raise EngineDied(f"the engine has not answered for {self._hang_seconds:.0f} s and was stopped; load the model again")
        try:
            message = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join(CLOSE_SECONDS)
            raise EngineDied(self._obituary()) from error
        if isinstance(message, Raised):
            raise getattr(errors, message.kind)(message.text)
        return message

    def _obituary(self) -> str:
        """Why the child is gone, in one line."""
        self._process.join(1.0)
        code = self._process.exitcode
        last = _last_words(self.config.log_file)
        if code == -9:
            return "the engine was killed, probably because memory ran out; choose a smaller model or --ctx and load it again"
        cause = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        return f"the engine crashed ({cause}){': ' + last if last else ''}; load the model again"

    def _kill(self) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join(CLOSE_SECONDS)
        self._connection.close()

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _last_words(log: Path | None) -> str:
    """The line in which ggml or Python said why it gave up, from the end of the log."""
    if log is None:
        return ""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            lines = file.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    telling = [line.strip() for line in lines if any(word in line for word in ("GGML_ASSERT", "terminate called", "what():", "Error:"))]
    return telling[-1][:200] if telling else ""


# ---- in the child


def _serve(connection: Connection, config: LoadConfig, flag: Any) -> None:
    """Load, then answer calls until the parent closes or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is the parent's to handle
    _redirect_output(config.log_file)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    from engine.engine import Engine
    from engine.llama.binding import CancelFlag

    cancel = CancelFlag(flag)

    def progress(step: LoadProgress) -> bool:
        connection.send(step)
        return not cancel.is_set()

    try:
        engine = Engine(config, progress, cancel)
    except EngineError as error:
        connection.send(Raised(type(error).__name__, str(error)))
        return
    with engine:
        connection.send(Ready(engine.notices, engine.load_seconds, engine.context, engine.describe()))
        while True:
            try:
                call = connection.recv()
            except EOFError:
                return
            if call.method == "close":
                return
            try:
                result = getattr(engine, call.method)(*call.args)
                if call.method == "run":
                    for event in result:
                        connection.send(event)
                    result = None
                connection.send(Returned(result))
            except EngineError as error:
                connection.send(Raised(type(error).__name__, str(error)))
            except (BrokenPipeError, ConnectionResetError):
                return
            except Exception as error:  # noqa: BLE001 - a bug of ours: the caller gets one line, the log the traceback
                traceback.print_exc()
                connection.send(Raised("EngineError", f"internal error: {type(error).__name__}: {error}"))


def _redirect_output(log: Path | None) -> None:
    """Native code prints to the file descriptors; the terminal belongs to the parent's UI."""
    try:
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        target = os.open(log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        target = os.open(os.devnull, os.O_WRONLY)
    os.dup2(target, 1)
    os.dup2(target, 2)
    faulthandler.enable(sys.__stderr__ or sys.stderr)
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # ggml's abort() would start a debugger on this process


def _die_with_parent() -> None:
    """A parent that was killed cannot say goodbye; without this the child would keep gigabytes of memory."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
