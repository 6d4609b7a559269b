"""Asking the engine's process for a reply, so that a stop at any moment is heard. Runs on the engine host's thread."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing

from engine import EngineError, EngineProcess, Finished, GenerationEvent, GenerationRequest


def events_of(
    process: EngineProcess, request: GenerationRequest, stopped: Callable[[], bool], between: Callable[[], None]
) -> Generator[GenerationEvent, None, None]:
    """The events of one reply; the last is Finished. `between` is called after each, when the process can be asked other
    things. Closing it ends the reply. Raises EngineError."""
    events = process.generate(request)
    if stopped():  # `generate` has lowered the flag that a stop before it raised
        process.cancel()
    with closing(events):
        for event in events:
            yield event
            if isinstance(event, Finished):
                return
            between()
    raise EngineError("the engine ended a reply without saying how")


def whole_reply(
    process: EngineProcess, request: GenerationRequest, stopped: Callable[[], bool], between: Callable[[], None]
) -> Finished:
    """The same without looking at what comes on the way. Raises EngineError."""
    for event in events_of(process, request, stopped, between):
        if isinstance(event, Finished):
            return event
    raise AssertionError("events_of ends with Finished")
