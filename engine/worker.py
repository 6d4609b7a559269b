"""What runs in an engine's process: load, then answer calls until the owner closes the pipe or dies.

The main thread decodes. A second thread reads the pipe and answers at once what needs no decoding, so that tokens
can be counted while a reply is written.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import queue
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from engine.child import redirect_output
from engine.errors import EngineError
from engine.messages import LOADING, Call, Message, Raised, Ready, Returned
from engine.values import GenerationEvent, LoadConfig, LoadProgress, RoundDone, TextDelta

if TYPE_CHECKING:
    from engine.engine import Engine

Send = Callable[[Message], None]

GATHER_SECONDS = 0.12
"""Between two messages of a reply: each wakes its owner, who may share our cores, and 8 a second read as flowing."""


def serve(connection: Connection, config: LoadConfig, flag: Any, niceness: int = 0) -> None:
    """The process's main function. `flag`: two shared bytes, the first raised to cancel. `niceness`: see EngineProcess."""
    if niceness and hasattr(os, "nice"):
        os.nice(niceness)  # before the threads that compute are made: they inherit it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is the owner's to handle
    redirect_output(config.log_file).close()
    threading.Thread(target=_die_with_owner, daemon=True).start()
    from engine.engine import Engine
    from engine.llama.binding import CancelFlag

    cancel = CancelFlag(flag)
    lock = threading.Lock()

    def send(message: Message) -> None:
        with lock:
            connection.send(message)

    def progress(step: LoadProgress) -> bool:
        send(Message(LOADING, step))
        return not cancel.is_set()

    try:
        engine = Engine(config, progress, cancel)
    except EngineError as error:
        send(Message(LOADING, Raised(type(error).__name__, str(error))))
        return
    with engine:
        send(Message(LOADING, Ready(engine.notices, engine.load_seconds, engine.context, engine.describe())))
        calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        threading.Thread(target=_listen, args=(connection, calls, engine, send), daemon=True).start()
        while (call := calls.get()) is not None:
            _answer(call, engine, send)


def _listen(connection: Connection, calls: queue.SimpleQueue[Call | None], engine: Engine, send: Send) -> None:
    """Pass calls on to the main thread; None when there will be no more."""
    while True:
        try:
            call = connection.recv()
        except (EOFError, OSError):
            break
        if call.method == "close":
            break
        if call.method == "count_tokens":
            _answer(call, engine, send)
        else:
            calls.put(call)
    calls.put(None)


def _answer(call: Call, engine: Engine, send: Send) -> None:
    """Run the call; its events, then its end."""
    try:
        result = getattr(engine, call.method)(*call.args)
        if call.method == "run":
            _send_events(call.number, result, send)
            result = None
        send(Message(call.number, Returned(result)))
    except EngineError as error:
        send(Message(call.number, Raised(type(error).__name__, str(error))))
    except (BrokenPipeError, ConnectionResetError):
        return  # the owner is gone; the pipe's end of file ends the process
    except Exception as error:  # noqa: BLE001 - a bug of ours: the owner gets one line, the log the traceback
        traceback.print_exc()
        send(Message(call.number, Raised("EngineError", f"internal error: {type(error).__name__}: {error}")))


def _send_events(number: int, events: Iterable[GenerationEvent], send: Send) -> None:
    """Gather what a reply's rounds say, and send it every GATHER_SECONDS at most: the text as one delta, then the numbers.
    The first round, and whatever is no round's, is told at once."""
    sent = -math.inf
    texts: list[TextDelta] = []
    rounds: list[RoundDone] = []

    def tell(*last: GenerationEvent) -> None:
        gathered = (*([_joined(texts)] if texts else ()), *rounds, *last)
        texts.clear()
        rounds.clear()
        if gathered:
            send(Message(number, gathered))

    try:
        for event in events:
            if isinstance(event, TextDelta):
                texts.append(event)
            elif not isinstance(event, RoundDone):
                tell(event)
            else:
                rounds.append(event)
                if time.monotonic() - sent >= GATHER_SECONDS:
                    sent = time.monotonic()
                    tell()
    finally:  # what was written before an error is told before it
        tell()


def _joined(deltas: Sequence[TextDelta]) -> TextDelta:
    """Deltas that follow each other, as one."""
    if len(deltas) == 1:
        return deltas[0]
    text = "".join(delta.text for delta in deltas)
    origins = tuple(origin for delta in deltas for origin in delta.origins)
    return TextDelta(text, origins, tuple(length for delta in deltas for length in delta.lengths))


def _die_with_owner() -> None:
    """An owner that was killed cannot say goodbye; without this the process would keep gigabytes of memory."""
    owner = multiprocessing.parent_process()
    if owner is not None:
        owner.join()
        os._exit(1)
