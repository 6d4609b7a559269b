"""Tells a model's thinking from its answer. Pure; called again and again on a growing reply.

Models write their thinking first, between tags of several kinds. Some templates open the tag themselves, so that the
reply holds only its end. A tag anywhere else (in code, in an explanation of tags) is text like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

_TAGS = (*tuple((f"<{name}>", f"</{name}>") for name in ("think", "thinking", "thought", "reasoning")), ("[THINK]", "[/THINK]"))


@dataclass(frozen=True, slots=True)
class Split:
    """A reply in two. `thinking` is None where there is none; `thought` says that it is over."""

    thinking: str | None
    answer: str
    thought: bool = True


def split_thinking(text: str, *, growing: bool = False) -> Split:
    """Split a reply. While it is `growing`, what may yet become an opening tag is held back."""
    start = text.lstrip()
    for opening, closing in _TAGS:
        if start.startswith(opening):
            thinking, found, answer = start[len(opening) :].partition(closing)
            if not found and growing:
                thinking = _without_start_of(closing, thinking)
            return Split(thinking.strip("\n"), answer.lstrip("\n"), bool(found))
        if growing and start and opening.startswith(start):
            return Split(None, "")
    for opening, closing in _TAGS:
        thinking, found, answer = text.partition(closing)
        # An end without a beginning stands alone on its line, or at the end of one; quoted ones stand in code.
        if found and opening not in thinking and "`" not in thinking and answer[:1] in ("", "\n"):
            return Split(thinking.strip("\n"), answer.lstrip("\n"))
    return Split(None, text)


def _without_start_of(tag: str, text: str) -> str:
    """`text` less a beginning of `tag` at its end."""
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:length]):
            return text[:-length]
    return text
