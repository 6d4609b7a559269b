"""ChatGPT's export: conversations.json, by itself or in the .zip that is mailed.

A list of conversations, each with `title`, `create_time`, `update_time` (seconds), `current_node` and `mapping`, which is a
tree: node id to {`parent`, `children`, `message`}. A message has `author.role`, `create_time` and `content`, whose
`content_type` says what it is; `text` and `multimodal_text` hold `parts`, strings among other things. Branches stay branches.
What a person does not see there (empty and hidden nodes) goes without a word; images, tool calls and their results are
counted as left out, and replies that only they separated become one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from app.chat.conversation import Chat, Message, Role
from app.settings import ChatSettings
from app.transfer.values import ReadChat, number, one_line, text_of

_MARKS = re.compile("\ue200[^\ue201]*\ue201")
"""Where a citation stood; the characters show nowhere else."""
_SILENT = ("user_editable_context", "model_editable_context", "reasoning_recap")


def is_chatgpt(content: Any) -> bool:
    """Whether a parsed file looks like an export, or one conversation of one."""
    first = content[0] if isinstance(content, list) and content else content
    return isinstance(first, dict) and isinstance(first.get("mapping"), dict)


def read_conversation(conversation: Any) -> ReadChat | None:
    """One conversation; None for something else, or one without a word in it."""
    if not isinstance(conversation, dict) or not isinstance(conversation.get("mapping"), dict):
        return None
    created = number(conversation.get("create_time"), 0.0)
    tree = _Tree(conversation["mapping"], created)
    messages = tree.read()
    if not messages:
        return None
    shown = tree.kept_for(conversation.get("current_node"))
    chat = Chat(
        id=0, title=one_line(conversation.get("title")), created=created,
        updated=number(conversation.get("update_time"), messages[-1].created), pinned=conversation.get("pinned_time") is not None,
        tags=(), settings=ChatSettings(system=tree.system), unsent="", leaf_id=shown or messages[-1].id,
    )
    return ReadChat(chat, tuple(messages), tree.left_out)


@dataclass(slots=True)
class _Open:
    """A node that is next, below the message `kept`; `alone` if no branch begins between the two."""

    node: str
    kept: int | None
    alone: bool


class _Tree:
    def __init__(self, mapping: dict[str, Any], created: float) -> None:
        self.left_out = 0
        self.system: str | None = None
        self._nodes = {name: node for name, node in mapping.items() if isinstance(node, dict)}
        self._created = created
        self._messages: list[Message] = []
        self._kept: dict[str, int | None] = {}
        """Node to the message it is, or went into."""

    def kept_for(self, node: Any) -> int | None:
        return self._kept.get(node) if isinstance(node, str) else None

    def read(self) -> list[Message]:
        """The messages, parents first and siblings in their order. Nodes in a circle, or below one, are not reached."""
        children = self._children()
        waiting = [_Open(root, None, False) for root in reversed(children.get(None, []))]
        while waiting:
            now = waiting.pop()
            kept = self._keep(now)
            self._kept[now.node] = kept
            below = children.get(now.node, [])
            alone = len(below) == 1 and (now.alone or kept != now.kept)
            waiting += [_Open(child, kept, alone) for child in reversed(below)]
        return self._messages

    def _children(self) -> dict[str | None, list[str]]:
        """By the parents that nodes name; in the order that parents give, where they do."""
        found: dict[str | None, list[str]] = {}
        for name, node in self._nodes.items():
            parent = node.get("parent")
            found.setdefault(parent if isinstance(parent, str) and parent in self._nodes else None, []).append(name)
        for parent, names in found.items():
            listed = self._nodes[parent].get("children") if parent is not None else None
            if isinstance(listed, list):
                place = {name: at for at, name in enumerate(listed) if isinstance(name, str)}
                names.sort(key=lambda name: place.get(name, len(place)))
        return found

    def _keep(self, now: _Open) -> int | None:
        """The message that this node becomes, joins, or (if there is nothing to keep of it) hangs below."""
        message = self._nodes[now.node].get("message")
        if not isinstance(message, dict):
            return now.kept
        role, text = self._read(message)
        if not role or not text.strip():
            return now.kept
        above = self._messages[now.kept - 1] if now.kept is not None else None
        if above is not None and now.alone and role == above.role == "assistant":
            self._messages[above.id - 1] = replace(above, text=f"{above.text}\n\n{text}")
            return now.kept
        number_ = len(self._messages) + 1
        created = number(message.get("create_time"), above.created if above is not None else self._created)
        self._messages.append(Message(number_, 0, now.kept, role, text, created))
        return number_

    def _read(self, message: dict[str, Any]) -> tuple[Role | None, str]:
        """Who says what. Counts what is left out; a system prompt is put aside."""
        author, content, metadata = (_part(message, name) for name in ("author", "content", "metadata"))
        kind, role = content.get("content_type"), author.get("role")
        if metadata.get("is_visually_hidden_from_conversation") or kind in _SILENT:
            return None, ""
        text = self._text(content) if kind in ("text", "multimodal_text", None) else ""
        if role == "system":
            self.system = self.system or text.strip() or None
            return None, ""
        if role not in ("user", "assistant") or kind not in ("text", "multimodal_text", None) or _addressed_to_a_tool(message):
            self.left_out += 1
            return None, ""
        return role, _MARKS.sub("", text)

    def _text(self, content: dict[str, Any]) -> str:
        parts = content.get("parts")
        texts = []
        for part in parts if isinstance(parts, list) else [content.get("text")]:
            if text := text_of(part) or text_of(part.get("text") if isinstance(part, dict) else None):
                texts.append(text)
            elif isinstance(part, dict):
                self.left_out += 1
        return "\n\n".join(texts)


def _addressed_to_a_tool(message: dict[str, Any]) -> bool:
    return message.get("recipient") not in (None, "all")


def _part(of: dict[str, Any], name: str) -> dict[str, Any]:
    value = of.get(name)
    return value if isinstance(value, dict) else {}
