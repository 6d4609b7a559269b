"""LM Studio's conversation files (`<number>.conversation.json`), and plain lists of messages in the OpenAI form.

`messages` holds turns; each has `versions` (what editing and regenerating left) and which is `currentlySelected`. A version
is a `singleStep` with `content`, or a `multiStep` with `steps`, of which a `contentBlock` has `content`; content is a list
of typed parts. What followed another version than the selected one is not in the file, so those become branches of one
message. Steps in the style `thinking` stay as thinking; files, images and tool calls are counted as left out.
"""

from __future__ import annotations

from typing import Any

from app.chat.conversation import Chat, Message, Role
from app.settings import ChatSettings
from app.transfer.values import ReadChat, number, one_line, text_of

_SYSTEM_FIELD = "llm.prediction.systemPrompt"


def is_lm_studio(content: Any) -> bool:
    """Whether a parsed file looks like one."""
    return isinstance(content, dict) and isinstance(content.get("messages"), list)


def read_conversation(content: dict[str, Any]) -> ReadChat | None:
    """The conversation; None if there is not a word in it."""
    created = _seconds(content.get("createdAt"), 0.0)
    reader = _Reader(created)
    for turn in content["messages"]:
        if isinstance(turn, dict):
            reader.turn(turn)
    if not reader.messages:
        return None
    last = max(_seconds(content.get(name), created) for name in ("userLastMessagedAt", "assistantLastMessagedAt"))
    chat = Chat(
        id=0, title=one_line(content.get("name")), created=created, updated=last, pinned=content.get("pinned") is True, tags=(),
        settings=ChatSettings(system=_system(content) or reader.system), unsent=text_of(content.get("clientInput")), leaf_id=reader.leaf,
    )
    return ReadChat(chat, tuple(reader.messages), reader.left_out)


class _Reader:
    """Goes through the turns; `leaf` is the last message of the selected versions."""

    def __init__(self, created: float) -> None:
        self.messages: list[Message] = []
        self.left_out = 0
        self.leaf: int | None = None
        self.system: str | None = None
        self._created = created

    def turn(self, turn: dict[str, Any]) -> None:
        versions = turn.get("versions")
        if not isinstance(versions, list) or not versions:
            versions = [turn]  # a message of the OpenAI form is its only version
        selected = turn.get("currentlySelected")
        above, leaf = self.leaf, self.leaf
        for at, version in enumerate(versions):
            if not isinstance(version, dict):
                continue
            role, text = self._version(version)
            if role is None or not text.strip():
                continue
            self.messages.append(Message(len(self.messages) + 1, 0, above, role, text, self._created))
            if leaf == above or at == selected:
                leaf = len(self.messages)
        self.leaf = leaf

    def _version(self, version: dict[str, Any]) -> tuple[Role | None, str]:
        steps = version.get("steps")
        if isinstance(steps, list):
            text = "\n\n".join(part for step in steps if isinstance(step, dict) and (part := self._step(step)))
        else:
            text = self._content(version.get("content"))
        match version.get("role"):
            case "user":
                return "user", text
            case "assistant":
                return "assistant", text
            case "system":
                self.system = self.system or text.strip() or None
            case _:
                self.left_out += 1
        return None, ""

    def _step(self, step: dict[str, Any]) -> str:
        if step.get("type") != "contentBlock" or step.get("roleOverride") == "tool":
            self.left_out += step.get("type") in ("contentBlock", "toolStatus")
            return ""
        text = self._content(step.get("content"))
        style = step.get("style")
        if isinstance(style, dict) and style.get("type") == "thinking" and text.strip():
            return f"<think>\n{text.strip()}\n</think>"
        return text

    def _content(self, content: Any) -> str:
        if not isinstance(content, list):
            return text_of(content)
        texts = []
        for part in content:
            if isinstance(part, dict) and part.get("type") == "text":
                texts.append(text_of(part.get("text")))
            else:
                self.left_out += 1
        return "\n\n".join(text for text in texts if text)


def _system(content: dict[str, Any]) -> str | None:
    own = content.get("perChatPredictionConfig")
    fields = own.get("fields") if isinstance(own, dict) else None
    for field in fields if isinstance(fields, list) else []:
        if isinstance(field, dict) and field.get("key") == _SYSTEM_FIELD and text_of(field.get("value")).strip():
            return text_of(field["value"])
    return text_of(content.get("systemPrompt")) or None


def _seconds(milliseconds: Any, otherwise: float) -> float:
    usable = isinstance(milliseconds, (int, float)) and not isinstance(milliseconds, bool)
    return number(milliseconds / 1000, otherwise) if usable else otherwise
