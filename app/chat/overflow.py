"""What happens when a chat outgrows the context and its older turns are to be summarised.

The model writes the summary itself, from the turns it has in its caches. It is stored as a message of kind `summary`,
below the last turn it stands for, and the user's new message comes again below it:

    ... older turns ... - summary - the user's message - the reply

The older turns stay where they are, visible and searchable; the chat shows the summary as the line where they end for the
model, which from then on reads the system prompt, the summary and what is below it. This is done as soon as the prompt
leaves less than a quarter of the context for the reply (or less than the reply may take). The last exchange is often what the
new message is about, so it follows in the summary word for word where it is short enough. When the context fills again,
a new summary is made of the old one and what came after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.chat.events import HostNotice, StoreFailed, SummaryMade
from app.chat.generating import whole_reply
from app.chat.jobs import ReplyJob
from app.chat.reply_writer import Desk
from app.chat.thinking import split_thinking
from app.sanitize import sanitize
from app.store import StoreError
from engine import (
    ChatMessage,
    ContextFull,
    DecodeFailed,
    EngineProcess,
    GenerationRequest,
    SamplingParams,
    TemplateFailed,
)

HEADING = "Summary of the conversation so far:"
LAST_HEADING = "Its last exchange, word for word:"
INSTRUCTION = (
    "The conversation has become too long to be kept whole. Write a summary of it from which it can go on: what is wanted, "
    "facts, names, numbers, decisions, open questions, and code or text that is still worked on. Answer with the summary alone."
)
WORD_FOR_WORD = 4
"""The last exchange is kept as it is if it takes no more than one part in four of the context."""
PARTS_RESERVE = 160
"""Tokens for the instruction and the template's own text where a summary is made in parts."""


class Crowded(Exception):
    """The prompt fits, but leaves little room for the reply."""


class Stopped(Exception):
    """The user took the reply back while room was made for it."""


def crowded_from(request: GenerationRequest, context: int) -> int:
    """Tokens of a prompt beyond which room is made."""
    return context - min(request.max_tokens, context // 4)


def summarise_older(process: EngineProcess, job: ReplyJob, desk: Desk) -> ReplyJob | None:
    """The job as it can be done: with a summary in the place of its older turns, stored and told. None where there is
    nothing to summarise, or the model could not, which is told. Raises Stopped or EngineDied."""
    head = 1 if job.settings.system and job.messages[0].role == "system" else 0
    older, asked = job.messages[head:-1], job.messages[-1]
    if not any(message.role == "assistant" for message in older):
        return None
    desk.emit(HostNotice(job.message_id, "the context is full: the older turns are being summarised", passing=True))
    try:
        summary = _summary(process, job.messages[:-1], desk)
    except (ContextFull, DecodeFailed, TemplateFailed) as error:
        desk.emit(HostNotice(job.message_id, f"the older turns could not be summarised: {error}"))
        return None
    if not summary:
        desk.emit(HostNotice(job.message_id, "the older turns could not be summarised: the model wrote nothing"))
        return None
    text = f"{HEADING}\n\n{summary}"
    start = max((at for at, message in enumerate(older) if message.role == "user"), default=len(older))
    last = _transcript(older[start:])
    if last and process.count_tokens(last) <= process.context // WORD_FOR_WORD:
        text += f"\n\n{LAST_HEADING}\n\n{last}"
    messages = (*job.messages[:head], ChatMessage("system", text), asked)
    return replace(job, messages=messages, message_id=_store_summary(job, text, desk))


def _store_summary(job: ReplyJob, text: str, desk: Desk) -> int:
    """Store the summary and, below it, the user's message and the reply anew; the reply's id."""
    store = desk.store()
    try:
        asked = store.message(store.message(job.message_id).parent_id or 0)
        alone = store.siblings(job.message_id) == [job.message_id]
        summary = store.add_message(job.chat_id, asked.parent_id, "system", text, kind="summary")
        prompt = store.add_message(job.chat_id, summary.id, "user", asked.text, asked.attachments)
        reply = store.start_reply(job.chat_id, prompt.id)
        store.delete_message(asked.id if alone else job.message_id)
    except StoreError as error:
        desk.emit(StoreFailed(str(error)))
        return job.message_id  # answered all the same, with the summary for this once
    desk.emit(SummaryMade(job.chat_id, summary.id, prompt.id, reply.id, job.message_id))
    return reply.id


def _summary(process: EngineProcess, messages: Sequence[ChatMessage], desk: Desk) -> str:
    """Of the whole chat at once, on top of what is read already; in parts where even that does not fit."""
    try:
        return _ask(process, (*messages, ChatMessage("user", INSTRUCTION)), desk)
    except ContextFull:
        summary = ""
    room = process.context - 2 * _longest(process) - PARTS_RESERVE
    for part in _parts(process, messages, room):
        before = f"{HEADING}\n{summary}\n\nIt went on:\n\n" if summary else ""
        summary = _ask(process, (ChatMessage("user", f"{before}{part}\n\n{INSTRUCTION}"),), desk)
    return summary


def _ask(process: EngineProcess, messages: tuple[ChatMessage, ...], desk: Desk) -> str:
    request = GenerationRequest(
        messages=messages, sampling=SamplingParams(temperature=0.0), max_tokens=_longest(process), overflow="stop"
    )
    finished = whole_reply(process, request, desk.stopped, desk.between)
    if finished.reason == "cancelled":
        raise Stopped
    return split_thinking(sanitize(finished.text)).answer.strip()


def _longest(process: EngineProcess) -> int:
    """Tokens of a summary."""
    return min(768, process.context // 5)


def _parts(process: EngineProcess, messages: Sequence[ChatMessage], room: int) -> list[str]:
    """The conversation as texts of at most `room` tokens."""
    parts: list[str] = []
    for message in messages:
        piece = _transcript([message])
        if (tokens := process.count_tokens(piece)) > room:
            keep = len(piece) * room // (2 * tokens)  # one huge message: its beginning and its end
            piece = f"{piece[:keep]}\n[...]\n{piece[-keep:]}"
        if parts and process.count_tokens(f"{parts[-1]}\n\n{piece}") <= room:
            parts[-1] += f"\n\n{piece}"
        else:
            parts.append(piece)
    return parts


def _transcript(messages: Sequence[ChatMessage]) -> str:
    return "\n\n".join(f"{message.role.capitalize()}: {message.content}" for message in messages)

