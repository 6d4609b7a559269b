"""One reply: from the job to the engine's request, its events to the writer, and every way it can end to a state."""

from __future__ import annotations

from contextlib import closing

from app.chat.conversation import MessageState
from app.chat.events import HostNotice, PromptRead
from app.chat.generating import events_of
from app.chat.job_queue import ShadowJob
from app.chat.jobs import ReplyJob
from app.chat.overflow import Crowded, Stopped, crowded_from, summarise_older
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


def run_reply(process: EngineProcess, job: ReplyJob, desk: Desk) -> ShadowJob | None:
    """Make the reply; ReplyEnded is told whatever happens. What there is to read again of one that was not broken off.
    Raises EngineDied, after that."""
    writer = ReplyWriter(desk, job.message_id, process.context)
    try:
        request = request_for(job, process.context)
        try:
            limit = crowded_from(request, process.context) if job.overflow == "summarise" else None
            finished = _drive(process, request, writer, desk, limit)
        except (Crowded, ContextFull) as full:
            shorter = summarise_older(process, job, desk) if job.overflow == "summarise" else None
            if shorter is not None:
                writer, request = ReplyWriter(desk, shorter.message_id, process.context), request_for(shorter, process.context)
            elif isinstance(full, ContextFull):
                raise
            finished = _drive(process, request, writer, desk, None)
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
        if writer.text != finished.text:
            process.known_as(request, finished, writer.text)
        if finished.reason != "cancelled":
            return ShadowJob(writer.message_id, request, finished)
    return None


def refuse_reply(job: ReplyJob, desk: Desk, line: str | None) -> None:
    """End a reply that was never begun; without a line because the user took it back."""
    ReplyWriter(desk, job.message_id, 0).end("failed" if line else "cancelled", line=line)


def _drive(
    process: EngineProcess, request: GenerationRequest, writer: ReplyWriter, desk: Desk, limit: int | None
) -> Finished:
    """Hand the engine's events on. Raises EngineError, and Crowded for a prompt of more than `limit` tokens."""
    with closing(events_of(process, request, desk.stopped, desk.between)) as events:
        for event in events:
            match event:
                case PrefillProgress(_, total, _) if limit is not None and total > limit:
                    raise Crowded
                case PrefillProgress(done, total, cached):
                    desk.emit(PromptRead(writer.message_id, done, total, cached))
                case Notice(text, dropped):
                    writer.dropped = max(writer.dropped, dropped)
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
