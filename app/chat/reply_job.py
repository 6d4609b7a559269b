"""One reply: from the job to the engine's request, its events to the writer, and every way it can end to a state."""

from __future__ import annotations

from app.chat.conversation import MessageState
from app.chat.events import HostNotice, PromptRead
from app.chat.generating import events_of
from app.chat.jobs import ReplyJob
from app.chat.overflow import Stopped, summarise_older
from app.chat.reply_writer import Desk, ReplyWriter
from app.sanitize import sanitize
from engine import (
    ContextFull,
    EngineDied,
    EngineError,
    EngineProcess,
    Finished,
    GenerationRequest,
    Notice,
    PrefillProgress,
    RoundDone,
    SamplingParams,
    TextDelta,
)

STATES: dict[str, MessageState] = {"stop": "complete", "length": "length", "context": "context", "cancelled": "cancelled"}


def request_for(job: ReplyJob, context: int) -> GenerationRequest:
    """The engine's request. Unless the chat's settings limit it, a reply may fill the context. Raises BadRequest."""
    return GenerationRequest(
        messages=job.messages, sampling=SamplingParams(**job.settings.sampling()),
        overflow="drop" if job.overflow == "drop" else "stop", **{"max_tokens": context, **job.settings.request()},
    )


def run_reply(process: EngineProcess, job: ReplyJob, desk: Desk) -> None:
    """Make the reply; ReplyEnded is told whatever happens. Raises EngineDied, after that."""
    writer = ReplyWriter(desk, job.message_id, process.context)
    try:
        request = request_for(job, process.context)
        try:
            finished = _drive(process, request, writer, desk)
        except ContextFull as full:
            if job.overflow != "summarise":
                raise
            job = summarise_older(process, job, desk, full)
            writer = ReplyWriter(desk, job.message_id, process.context)
            finished = _drive(process, request_for(job, process.context), writer, desk)
    except Stopped:
        writer.end("cancelled")
    except EngineDied as error:
        if desk.stopped():  # it hung and was ended for it
            writer.end("cancelled")
        else:
            writer.end("interrupted", line=str(error))
        raise
    except ContextFull as error:
        writer.end("context", line=str(error))
    except EngineError as error:
        writer.end("failed", line=str(error))
    except BaseException:
        writer.end("failed", line="a fault in this program ended the reply")
        raise
    else:
        writer.end(STATES[finished.reason], finished.report, _why(finished.reason, request))


def refuse_reply(job: ReplyJob, desk: Desk, line: str | None) -> None:
    """End a reply that was never begun; without a line because the user took it back."""
    ReplyWriter(desk, job.message_id, 0).end("failed" if line else "cancelled", line=line)


def _drive(process: EngineProcess, request: GenerationRequest, writer: ReplyWriter, desk: Desk) -> Finished:
    for event in events_of(process, request, desk.stopped, desk.between):
        match event:
            case PrefillProgress(done, total, cached):
                desk.emit(PromptRead(writer.message_id, done, total, cached))
            case Notice(text, dropped):
                desk.emit(HostNotice(writer.message_id, sanitize(text), dropped))
            case TextDelta():
                writer.take(event)
            case RoundDone():
                writer.measure(event)
            case Finished():
                return event
    raise AssertionError("events_of ends with Finished")


def _why(reason: str, request: GenerationRequest) -> str | None:
    """What to say of a reply that its own end does not explain."""
    if reason == "length":
        return f"the reply was cut at {request.max_tokens} tokens; this chat's settings can allow more"
    if reason == "context":
        return "the reply was cut because the context is full; a larger one (--ctx) holds more"
    return None
