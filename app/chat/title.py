"""A chat's title: made by the model when nobody waits for it, or else from the user's first words.

The request goes on from the chat itself, so that what was read stays read, before and after. A model that thinks aloud
gets room for it, and its thoughts never become the title.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.chat.generating import whole_reply
from app.chat.jobs import TitleJob
from app.chat.thinking import split_thinking
from app.sanitize import sanitize
from engine import ChatMessage, EngineDied, EngineError, EngineProcess, GenerationRequest, SamplingParams

if TYPE_CHECKING:
    from app.chat.reply_writer import Desk

LONGEST = 60
"""Characters: a line of the chat list at 80 columns, beside the date."""
INSTRUCTION = (
    "Write a title for this conversation: at most six words, in its language, without quotation marks. "
    "Answer with the title alone."
)
TITLE_TOKENS, THINKING_TOKENS = 32, 600


def make_title(process: EngineProcess, job: TitleJob, desk: Desk) -> str | None:
    """A title of one line; None if it was called off. Raises EngineDied."""
    thinks = any(m.role == "assistant" and split_thinking(m.content).thinking is not None for m in job.messages)
    request = GenerationRequest(
        messages=(*job.messages, ChatMessage("user", INSTRUCTION)), sampling=SamplingParams(temperature=0.0),
        max_tokens=THINKING_TOKENS if thinks else TITLE_TOKENS, mode="plain", overflow="stop",
    )
    try:
        finished = whole_reply(process, request, desk.stopped, desk.between)
    except EngineDied:
        raise
    except EngineError:  # no room left for it, say
        return title_from_prompt(job.messages)
    if finished.reason == "cancelled":
        return None
    return clean_title(finished.text) or title_from_prompt(job.messages)


def title_from_prompt(messages: Sequence[ChatMessage]) -> str | None:
    """The first words of the user."""
    first = next((message.content for message in messages if message.role == "user"), "")
    return clean_title(first)


def clean_title(text: str) -> str | None:
    """One line of at most 60 characters from what a model wrote; None if nothing is left of it."""
    answer = split_thinking(sanitize(text)).answer
    line = next((line for line in answer.splitlines() if re.search(r"\w", line)), "")
    line = re.sub(r"^[\s#*_>`-]*(title\s*:)?", "", line, flags=re.IGNORECASE)
    line = " ".join(line.split()).strip(" \"'`*_“”„«».")
    if len(line) > LONGEST:
        cut = line[: LONGEST - 1]
        line = (cut.rsplit(" ", 1)[0] if " " in cut[LONGEST // 2 :] else cut).rstrip(" ,;:-") + "…"
    return line or None
