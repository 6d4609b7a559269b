"""The engine in a process of its own, with the methods of `Engine`: its owner's side.

A native crash (a malformed file makes ggml call abort()), an out-of-memory kill or a hang ends the process, never the
owner: the next read raises EngineDied with one line, and a new EngineProcess can be made. All memory goes back to
the system with the process. Cancelling is a byte of shared memory that llama.cpp itself polls, so it works in the
middle of a decode.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Generator
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType
from typing import Any

from engine import errors
from engine.child import exit_cause, interrupts_kept_back
from engine.errors import EngineDied, EngineError
from engine.messages import LOADING, Call, Message, Raised, Ready, Returned
from engine.shadow_result import ShadowResult
from engine.values import Finished, GenerationEvent, GenerationRequest, LoadConfig, LoadProgress
from engine.worker import serve

HANG_SECONDS = 300.0
"""Silence after which a busy process is given up: 512 prompt tokens take minutes on the slowest machines."""
CLOSE_SECONDS = 10.0
POLL_SECONDS = 0.1
"""How often whoever waits for the process is asked what it wants meanwhile."""


class EngineProcess:
    """A loaded pair in a process of its own. Not thread-safe but for `cancel`."""

    def __init__(
        self, config: LoadConfig, on_progress: Callable[[LoadProgress], bool] | None = None,
        hang_seconds: float = HANG_SECONDS, *, niceness: int = 0,
    ) -> None:
        """Start the process and load. Raises as Engine, and EngineDied.

        `niceness`: by how much the process yields to others where the system knows such a thing (POSIX); free on idle cores.
        on_progress hears the last step again while there is nothing new; what it raises ends the process at once, whatever
        that is doing.
        """
        self.config = config
        self._hang_seconds = hang_seconds
        self._numbers = itertools.count(LOADING + 1)
        self._open: int | None = None
        """The call that goes on while others may be made: a reply that has not ended yet, or a second reading of one."""
        self._waiting: deque[Any] = deque()
        """What it said that came while something else was awaited."""
        context = multiprocessing.get_context("spawn")
        self._flag = context.RawArray("c", 2)
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=serve, args=(theirs, config, self._flag, niceness), name="paceline engine", daemon=True
        )
        with interrupts_kept_back():
            self._process.start()
        theirs.close()  # so that the process's end is the only one, and its death reads as end of file
        try:
            ready: Any = LoadProgress("target", 0.0)

            def report() -> None:
                if on_progress is not None and not on_progress(ready):
                    self.cancel()

            while isinstance(ready := self._receive(LOADING, report), LoadProgress):
                report()
        except BaseException:
            self._kill()
            raise
        assert isinstance(ready, Ready)
        self.notices, self.load_seconds, self.context = ready.notices, ready.load_seconds, ready.context
        self._description = ready.description

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    # ---- Engine's methods

    def generate(self, request: GenerationRequest) -> Generator[GenerationEvent, None, None]:
        """As Engine.generate. Raises EngineDied when the process ends; the events so far stay valid."""
        self._end_open_reply()
        self._flag[0] = b"\x00"
        self._open = self._send("run", request)
        return self._events(self._open)

    def _events(self, number: int) -> Generator[GenerationEvent, None, None]:
        try:
            while self._open == number:
                content = self._receive(number)
                if isinstance(content, Returned):
                    self._open = None
                else:
                    yield from content
        except EngineError:
            self._open = None
            raise
        finally:
            if self._open == number:
                self._end_open_reply()

    def _end_open_reply(self) -> None:
        """Stop a reply that nobody reads to its end, and wait until the process is free."""
        if self._open is None:
            return
        number, self._open = self._open, None
        self._waiting.clear()
        self.cancel()
        with contextlib.suppress(EngineError):
            while not isinstance(self._receive(number), Returned):
                continue

    def cancel(self) -> None:
        """Stop the reply being decoded; safe from any thread or signal handler."""
        self._flag[0] = b"\x01"

    def count_tokens(self, text: str) -> int:
        """As Engine.count_tokens; works while a reply is written."""
        return int(self._receive(self._send("count_tokens", text)).value)

    def shadow_check(
        self, request: GenerationRequest, finished: Finished, meanwhile: Callable[[], None] | None = None
    ) -> ShadowResult:
        """As Engine.shadow_check. `meanwhile` is called now and then, and may count tokens and cancel."""
        self._end_open_reply()
        self._flag[0] = b"\x00"
        self._open = self._send("reread", request, finished)
        try:
            result: ShadowResult = self._receive(self._open, meanwhile).value
        finally:
            self._open = None
        return result

    def known_as(self, request: GenerationRequest, finished: Finished, text: str) -> None:
        """As Engine.known_as."""
        self._end_open_reply()
        self._receive(self._send("known_as", request, finished, text))

    def forget(self) -> None:
        self._end_open_reply()
        self._receive(self._send("forget"))

    def save_state(self, path: Path) -> int:
        """As Engine.save_state."""
        self._end_open_reply()
        return int(self._receive(self._send("save_state", path)).value)

    def restore_state(self, path: Path) -> bool:
        """As Engine.restore_state. Raises EngineDied if the process ends over it."""
        self._end_open_reply()
        return bool(self._receive(self._send("restore_state", path)).value)

    def describe(self) -> dict[str, Any]:
        return self._description

    def close(self) -> None:
        """Let the process save what it learned and end; kill it if it does not. Safe to call twice."""
        if self._process.is_alive():
            self.cancel()
            with contextlib.suppress(EngineError):
                self._send("close")
            self._process.join(CLOSE_SECONDS)
        self._kill()

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ---- the pipe

    def _send(self, method: str, *args: Any) -> int:
        """Send a call; its number."""
        number = next(self._numbers)
        try:
            self._connection.send(Call(number, method, args))
        except OSError as error:
            raise EngineDied(self._obituary()) from error
        return number

    def _receive(self, number: int, meanwhile: Callable[[], None] | None = None) -> Any:
        """What the process says next about that call. What it says of the open call waits; of older calls it is dropped.
        `meanwhile` is called now and then while nothing comes.

        Raises what the call raised, or EngineDied.
        """
        begun = time.monotonic()
        while True:
            if number == self._open and self._waiting:
                return self._unwrap(self._waiting.popleft())
            if not wait([self._connection, self._process.sentinel], POLL_SECONDS if meanwhile else self._hang_seconds):
                if meanwhile and time.monotonic() - begun < self._hang_seconds:
                    meanwhile()
                    continue
                self._kill()
                raise EngineDied(
                    f"the engine has not answered for {self._hang_seconds:.0f} s and was stopped; load the model again"
                )
            try:
                message: Message = self._connection.recv()
            except (EOFError, OSError) as error:
                raise EngineDied(self._obituary()) from error
            if message.number == number:
                return self._unwrap(message.content)
            if message.number == self._open:
                self._waiting.append(message.content)

    @staticmethod
    def _unwrap(content: Any) -> Any:
        if isinstance(content, Raised):
            raise getattr(errors, content.kind)(content.text)
        return content

    def _obituary(self) -> str:
        """Why the process is gone, in one line."""
        self._process.join(CLOSE_SECONDS)
        code = self._process.exitcode
        if code == -9:
            return "the engine was killed, probably because memory ran out; choose a smaller model or --ctx and load it again"
        last = _last_words(self.config.log_file)
        return f"the engine crashed ({exit_cause(code)}){': ' + last if last else ''}; load the model again"

    def _kill(self) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join(CLOSE_SECONDS)
        self._connection.close()


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
    telling = ("GGML_ASSERT", "terminate called", "what():", "Error:")
    return next((line.strip()[:200] for line in reversed(lines) if any(word in line for word in telling)), "")
