"""Chat messages to the prompt's token ids.

Three promises:

- Text in a message is text. A marker such as <|im_start|> inside one is encoded letter by letter; only those the
  template writes become control tokens. Messages without markers (nearly all) are encoded with the template's
  text in one piece, so their ids are those of any other runtime; at a marker in a message the text is cut.
- BOS stands once where the model wants it, whether the template, the tokenizer or both would write it.
- What was read stays read. After a reply, `remember` keeps its prompt's and its own ids. A later request that
  goes on from there gets these ids and then only what the template writes after the reply, even if the template
  would now write the past differently (without its thinking, or the reply in other tokens than were drawn).

A prompt over budget loses its oldest exchanges (a user message and what followed), never the system message. It
then loses a quarter more than it must: the next turns fit, and are read without starting over.
"""

from __future__ import annotations

import bisect
import codecs
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from engine.chat_template import ChatTemplate
from engine.errors import ContextFull, TemplateFailed
from engine.values import ChatMessage

Messages = tuple[ChatMessage, ...]
Variables = Mapping[str, object]

MEMORY = 64
"""Remembered turns, over all chats. A turn costs 8 bytes a token."""
ROOM_AFTER_DROPPING = 0.25


class Tokenizer(Protocol):
    """What prompts need of a vocabulary."""

    @property
    def bos(self) -> int | None: ...

    @property
    def add_bos(self) -> bool:
        """The model wants BOS before everything."""

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Ids without BOS; `special` turns the texts of control tokens into those."""

    def piece(self, token: int) -> bytes:
        """The bytes a reply shows for the token; none for control tokens."""

    def marker(self, token: int) -> str:
        """The text of a control token."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids to read before the reply."""

    ids: tuple[int, ...]
    dropped: int = 0
    """Messages of the request that are not in the prompt."""
    newly_dropped: int = 0
    """How many of those were still in the prompt that this one goes on from (all, if it goes on from none)."""


class PromptBuilder:
    """Builds prompts for one model and remembers the turns it has read."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._turns: OrderedDict[Chat, Prompt] = OrderedDict()  # a chat up to and with a reply -> what was read
        self._anchor = tokenizer.encode("\n", special=False)
        self._writes_space = b"".join(map(tokenizer.piece, tokenizer.encode("x", special=False))) == b" x"

    def build(self, messages: Sequence[ChatMessage], *, budget: int, variables: Variables | None = None) -> Prompt:
        """A prompt of at most `budget` tokens. Raises ContextFull, with the numbers, when the system message and
        the last exchange alone are longer, and TemplateFailed when the template cannot write the messages."""
        chat, names = tuple(messages), variables or {}
        known = self._longest_known(chat)
        if known:
            prompt = self._go_on(chat, known, names)
            if prompt and len(prompt.ids) <= budget:
                return prompt
        already = self._turns[known].dropped if known else 0
        prompt = Prompt(self._ids(_without(chat, already), names), already)
        return prompt if len(prompt.ids) <= budget else self._drop(chat, prompt, budget, names)

    def raw(self, text: str, *, budget: int) -> Prompt:
        """A prompt that is `text` itself: no template, and markers in it are control tokens."""
        ids = self._with_bos(self._tokenizer.encode(text, special=True))
        if len(ids) > budget:
            raise ContextFull(f"the prompt takes {len(ids)} tokens and {budget} fit: {ADVICE}")
        return Prompt(ids)

    def remember(self, messages: Sequence[ChatMessage], prompt: Prompt, reply: Sequence[int], text: str) -> None:
        """`prompt`, built from `messages`, was answered with the tokens `reply` (without the one that ended it),
        shown as `text`, which is shorter when a stop string was cut off."""
        chat = (*messages, ChatMessage("assistant", text))
        self._turns[chat] = Prompt(prompt.ids + self._spell(reply, text), prompt.dropped)
        self._turns.move_to_end(chat)
        if len(self._turns) > MEMORY:
            self._turns.popitem(last=False)

    # ---- going on from a remembered turn

    def _longest_known(self, chat: Chat) -> Chat:
        """The longest start of the chat that ends with a remembered reply; empty if none does."""
        ends = (end for end in range(len(chat) - 1, 0, -1) if chat[end - 1].role == "assistant")
        return next((chat[:end] for end in ends if chat[:end] in self._turns), ())

    def _go_on(self, chat: Chat, known: Chat, names: Variables) -> Prompt | None:
        """What was read, and what the template writes behind the last reply. None where that cannot be told, or
        where the template would now write the messages before the reply differently.

        Stand-ins take the replies' places: what a template does to replies (cut their thinking) is no change.
        """
        turn = self._turns[known]
        mark = _unused_character(chat)
        past = tuple(replace(m, content=mark * 2) if m.role == "assistant" else m for m in known[:-1])
        here = ChatMessage("assistant", mark * 3)
        new = chat[len(known) :]
        try:
            pieces = self._pieces(_without((*past, here, *new), turn.dropped), names, len(new))
            before = self._template.render(
                _without(past, turn.dropped), add_generation_prompt=False, variables=names
            )
            really = self._template.render(_without(chat, turn.dropped), variables=names)
        except TemplateFailed:
            return None
        text = "".join(pieces)
        if text.count(here.content) != 1 or not text.startswith(before):
            return None
        while here.content not in pieces[0]:
            del pieces[:2]
        pieces[0] = pieces[0].partition(here.content)[2]
        if not really.endswith("".join(pieces)):
            return None
        return Prompt(turn.ids + tuple(self._encode(pieces, inside=True)), turn.dropped)

    def _spell(self, reply: Sequence[int], text: str) -> tuple[int, ...]:
        """`reply` as far as it spells `text`, and other tokens for what remains of the text."""
        pieces = [self._tokenizer.piece(token) for token in reply]
        if b"".join(pieces).decode("utf-8", "replace") == text:
            return tuple(reply)
        utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        spelt, tokens, whole, shown = "", 0, 0, ""
        for tokens, piece in enumerate(pieces, 1):
            spelt += utf8.decode(piece)
            if not text.startswith(spelt):
                break
            if not utf8.getstate()[0]:
                whole, shown = tokens, spelt
        return (*reply[:whole], *self._encode([text[len(shown) :]], inside=True, special=False))

    # ---- dropping the oldest

    def _drop(self, chat: Chat, full: Prompt, budget: int, names: Variables) -> Prompt:
        ...

    # ---- text to ids

    def _ids(self, chat: Chat, names: Variables) -> tuple[int, ...]:
        return self._with_bos(self._encode(self._pieces(chat, names, len(chat))))
