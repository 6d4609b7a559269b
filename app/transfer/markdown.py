"""A chat as Markdown: the branch shown, to be read, printed or published.

    # Title

    > The system prompt, if there is one.

    ## You

    Text as it was written; then each attachment in a fence under its name.

    ## Assistant

    The reply; below it in italics how it ended, if it was not by itself.

Control characters and escape sequences are left out, so that the file can be shown in a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from app.chat.conversation import Attachment, Chat, Message
from app.sanitize import sanitize

_SPEAKERS = {"user": "You", "assistant": "Assistant", "system": "System"}
_ENDS = {
    "cancelled": "stopped", "length": "cut at its greatest length", "context": "cut where the context was full",
    "interrupted": "interrupted", "failed": "cut by a failure", "streaming": "still being written",
}


def to_markdown(chat: Chat, path: Iterable[Message]) -> str:
    """The chat with the messages of its branch."""
    parts = [f"# {sanitize(chat.title) or 'Chat'}", f"*{_date(chat.created)}*"]
    if chat.settings.system:
        parts.append("\n".join(f"> {line}".rstrip() for line in sanitize(chat.settings.system).splitlines()))
    for message in path:
        parts += _message(message)
    return "\n\n".join(parts) + "\n"


def _message(message: Message) -> list[str]:
    heading = "Summary of what was said before" if message.kind == "summary" else _SPEAKERS[message.role]
    parts = [f"## {heading}"]
    if text := sanitize(message.text).strip("\n"):
        parts.append(text)
    parts += [_attachment(attachment) for attachment in message.attachments]
    if end := _ENDS.get(message.state):
        parts.append(f"*({end})*")
    return parts


def _attachment(attachment: Attachment) -> str:
    text = sanitize(attachment.text)
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)  # longer than any fence inside
    return f"**{sanitize(attachment.name)}**\n\n{fence}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}"


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")
