"""A request's messages to the prompt's token ids.

- Text in a message stays text: a marker such as <|im_start|> inside one is encoded letter by letter, and only
  those the template writes become control tokens. Messages without markers (nearly all) are encoded together
  with the template's text, so their ids are those of any other runtime; at a marker the text is cut.
- BOS stands once where the model wants it, whether the template, the tokenizer or both would write it.
- What was read stays read. `remember` keeps a turn's own ids; a request that goes on from there gets them back,
  and then only what the template writes behind the reply, even where it would now write the past differently
  (without the thinking). An edited past is rendered anew.
- A prompt over budget loses its oldest exchanges (a user message and what follows it), never system messages. It
  makes some room at once, so that the next turns need not start over.
"""

from __future__ import annotations

import codecs
import functools
import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from engine.chat_template import ChatTemplate
from engine.errors import BadRequest, ContextFull, TemplateFailed
from engine.values import ChatMessage, GenerationRequest

Chat = tuple[ChatMessage, ...]
Variables = Mapping[str, object]

MEMORY = 64  # remembered turns over all chats; a turn takes 8 bytes a token
ROOM = 0.25  # of the budget is free after exchanges were dropped, if dropping more of them can do it


class Tokenizer(Protocol):
    """What prompts need of a model. `add_bos`: it wants BOS before everything."""

    @property
    def chat_template(self) -> str | None: ...
    @property
    def bos(self) -> int | None: ...
    @property
    def eos(self) -> int | None: ...
    @property
    def add_bos(self) -> bool: ...

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Ids without BOS; `special` turns the texts of control tokens into those."""

    def piece(self, token: int) -> bytes:
        """The bytes a reply shows for the token: none for a control token."""

    def marker(self, token: int | None) -> str:
        """The text of a control token; none for None."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids to read before the reply."""

    ids: tuple[int, ...]
    dropped: int = 0
    """Messages of the chat that are left out."""
    newly_dropped: int = 0
    """How many of them the turn before still had."""


class PromptBuilder:
    """Builds prompts for one model, and remembers the turns it has read."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Raises TemplateFailed if the model's chat template does not parse."""
        self._tokenizer = tokenizer
        self._template = ChatTemplate.for_model(
            tokenizer.chat_template, bos=tokenizer.marker(tokenizer.bos), eos=tokenizer.marker(tokenizer.eos),
            is_token=lambda text: len(tokenizer.encode(text, special=True)) == 1,
        )
        self.notice, self.stop = self._template.notice, self._template.stop  # see ChatTemplate
        self._turns: OrderedDict[Chat, Prompt] = OrderedDict()  # a chat up to and with a reply -> what was read
        self._anchor = tokenizer.encode("\n", special=False)
        self._adds_space = b"".join(map(tokenizer.piece, tokenizer.encode("x", special=False))) == b" x"

    def build(self, request: GenerationRequest, budget: int, variables: Variables | None = None) -> Prompt:
        """A prompt of at most `budget` tokens. Raises ContextFull, with the numbers, when the system message and
        the last exchange alone are longer (or the whole chat is, and the request's overflow is `stop`), and
        TemplateFailed when the template cannot write the messages.

        A raw `prompt` is encoded as it is: no template, and markers in it are control tokens.
        """
        chat, names = tuple(request.messages), variables or {}
        if request.prompt is not None:
            ids = self._with_bos(self._tokenizer.encode(request.prompt, special=True))
            return self._fitting(Prompt(ids), budget)
        if not chat:
            raise BadRequest("the request has neither messages nor a prompt")
        known = self._longest_known(chat)
        if request.overflow == "stop" and known and self._turns[known].dropped:
            known = ()  # what was left out is wanted now
        if known:
            prompt = self._go_on(chat, known, names)
            if prompt and len(prompt.ids) <= budget:
                return prompt
        already = self._turns[known].dropped if known else 0
        prompt = Prompt(self._ids(_without(chat, already), names), already)
        if len(prompt.ids) > budget and request.overflow == "stop":
            raise ContextFull(
                f"the chat takes {len(prompt.ids)} tokens and {budget} fit: leave out or summarise its oldest messages, "
                "start a new one, or load the model with a larger context"
            )
        return prompt if len(prompt.ids) <= budget else self._drop(chat, prompt, budget, names)

    def remember(self, request: GenerationRequest, prompt: Prompt, reply: Sequence[int], text: str) -> None:
        """`prompt`, built for `request`, was answered with the tokens `reply` (without the one that ended it),
        shown as `text`, which is shorter when a stop string was cut off."""
        if request.prompt is not None:
            return
        chat = (*request.messages, ChatMessage("assistant", text))
        self._keep(chat, Prompt(prompt.ids + self._spell(reply, text), prompt.dropped))

    def rename(self, chat: Chat, text: str) -> None:
        """The reply that ends `chat`, if it is remembered, goes by `text` from now on."""
        if turn := self._turns.pop(chat, None):
            self._keep((*chat[:-1], ChatMessage("assistant", text)), turn)

    def turns_along(self, read: Sequence[int]) -> dict[str, Any]:
        """The remembered turns of the chat that the tokens `read` belong to, fit for JSON; see `read_turns`."""
        def shared(ids: Sequence[int]) -> int:
            return next((i for i, (a, b) in enumerate(zip(ids, read, strict=False)) if a != b), min(len(ids), len(read)))

        along = {chat: turn for chat, turn in self._turns.items() if shared(turn.ids) == min(len(turn.ids), len(read))}
        longest = max(along, key=len, default=())
        return {
            "messages": [[message.role, message.content] for message in longest],
            "turns": [
                {"messages": len(chat), "dropped": turn.dropped, "shared": (n := shared(turn.ids)), "own": list(turn.ids[n:])}
                for chat, turn in along.items() if chat == longest[: len(chat)]
            ],
        }

    @staticmethod
    def read_turns(saved: Any, read: Sequence[int]) -> dict[Chat, Prompt]:
        """What `turns_along` gave for `read`. Raises KeyError, TypeError or ValueError for anything else."""
        messages = tuple(ChatMessage(role, str(content)) for role, content in saved["messages"])
        return {
            messages[: turn["messages"]]: Prompt((*read[: turn["shared"]], *map(int, turn["own"])), int(turn["dropped"]))
            for turn in saved["turns"]
        }

    def recall(self, turns: Mapping[Chat, Prompt]) -> None:
        """Remember these turns too."""
        for chat, turn in turns.items():
            self._keep(chat, turn)

    def _keep(self, chat: Chat, turn: Prompt) -> None:
        self._turns[chat] = turn
        self._turns.move_to_end(chat)
        if len(self._turns) > MEMORY:
            self._turns.popitem(last=False)

    def forget(self) -> None:
        """Forget all turns: every chat is rendered anew."""
        self._turns.clear()

    # ---- going on from a remembered turn

    def _longest_known(self, chat: Chat) -> Chat:
        """The longest start of the chat that ends with a remembered reply; empty if none does."""
        ends = (end for end in range(len(chat) - 1, 0, -1) if chat[end - 1].role == "assistant")
        return next((chat[:end] for end in ends if chat[:end] in self._turns), ())

    def _go_on(self, chat: Chat, known: Chat, names: Variables) -> Prompt | None:
        """What was read, and what the template writes behind the last reply. None where that cannot be told, or
        where the template would now write the messages before it differently.

        Stand-ins take the replies' places: what a template does to replies (cut their thinking) is no change.
        """
        turn, mark = self._turns[known], _unused_character(chat)
        here = f"{mark}reply{mark}"
        past = tuple(replace(m, content=f"{mark}past{mark}") if m.role == "assistant" else m for m in known[:-1])
        new = chat[len(known) :]
        stand_in = _without((*past, ChatMessage("assistant", here), *new), turn.dropped)
        try:
            pieces = self._pieces(stand_in, names, masked=len(new))
            before = self._template.render(_without(past, turn.dropped), add_generation_prompt=False, variables=names)
            really = self._template.render(_without(chat, turn.dropped), variables=names)
        except TemplateFailed:
            return None
        text = "".join(pieces)
        if text.count(here) != 1 or not text.startswith(before) or not really.endswith(text.partition(here)[2]):
            return None
        pieces[0] = pieces[0].partition(here)[2]  # only new messages are cut, and they are behind it
        return Prompt((*turn.ids, *self._encode(pieces, inside=True)), turn.dropped)

    def _spell(self, reply: Sequence[int], text: str) -> tuple[int, ...]:
        """`reply` as far as it spells `text`, and new tokens for what remains of the text."""
        pieces = [self._tokenizer.piece(token) for token in reply]
        if b"".join(pieces).decode("utf-8", "replace") == text:
            return tuple(reply)
        utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        spelt, kept, shown = "", 0, 0
        for count, piece in enumerate(pieces, 1):
            spelt += utf8.decode(piece)
            if not text.startswith(spelt):
                break
            if not utf8.getstate()[0]:  # a character that is only begun is spelt anew
                kept, shown = count, len(spelt)
        return (*reply[:kept], *self._inside(text[shown:], special=False))

    # ---- dropping the oldest exchanges

    def _drop(self, chat: Chat, full: Prompt, budget: int, names: Variables) -> Prompt:
        """The prompt without as many exchanges as it takes to leave ROOM, or else to fit at all."""
        turns = _without(chat, 0, system=False)
        users = [i for i, m in enumerate(turns) if m.role == "user" and i > full.dropped]
        starts = [i for i in users if turns[i - 1].role != "user"]
        ids = functools.cache(lambda dropped: self._ids(_without(chat, dropped), names))
        for most in (int(budget * (1 - ROOM)), budget):
            at = bisect_left(starts, True, key=lambda dropped: len(ids(dropped)) <= most)
            if at < len(starts):
                return Prompt(ids(starts[at]), starts[at], starts[at] - full.dropped)
        return self._fitting(Prompt(ids(starts[-1]) if starts else full.ids), budget)

    @staticmethod
    def _fitting(prompt: Prompt, budget: int) -> Prompt:
        if len(prompt.ids) > budget:
            numbers = f"the message takes {len(prompt.ids)} tokens and {budget} fit"
            raise ContextFull(f"{numbers}: shorten it, or load the model with a larger context")
        return prompt

    # ---- text to ids

    def _ids(self, chat: Chat, names: Variables) -> tuple[int, ...]:
        return self._with_bos(self._encode(self._pieces(chat, names, masked=len(chat))))

    def _pieces(self, chat: Chat, names: Variables, *, masked: int) -> list[str]:
        """The rendered chat, cut around each marker that the last `masked` messages contain: every second piece
        is one. Not cut if the template treats markers in a message in its own way."""
        text = self._template.render(chat, variables=names)
        mark = _unused_character(chat)
        found: list[str] = []

        def stand_in(marker: re.Match[str]) -> str:
            found.append(marker[0])
            return f"{mark}{len(found) - 1}{mark}"

        plain = len(chat) - masked
        markers = [self._markers(m.content) if i >= plain else None for i, m in enumerate(chat)]
        if not any(markers):
            return [text]
        cut = [replace(m, content=p.sub(stand_in, m.content)) if p else m for m, p in zip(chat, markers, strict=True)]
        pieces = re.split(f"{mark}(\\d+){mark}", self._template.render(cut, variables=names))
        pieces[1::2] = [found[int(i)] for i in pieces[1::2]]
        return pieces if "".join(pieces) == text else [text]

    def _markers(self, text: str) -> re.Pattern[str] | None:
        """What finds the markers in `text`; None if there are none."""
        ids = self._tokenizer.encode(text, special=True)
        if ids == self._tokenizer.encode(text, special=False):
            return None
        texts = {self._tokenizer.marker(t) for t in set(ids) if not self._tokenizer.piece(t)} - {""}
        return re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True)))) if texts else None

    def _encode(self, pieces: Sequence[str], *, inside: bool = False) -> list[int]:
        """Ids of a text cut by _pieces. `inside`: something stands before it."""
        ids: list[int] = []
        for i, piece in enumerate(pieces):
            special = i % 2 == 0
            ids += self._inside(piece, special) if inside or i else self._tokenizer.encode(piece, special=special)
        return ids

    def _inside(self, text: str, special: bool) -> list[int]:
        """Ids of `text` in the middle of something, where no space may be put before it."""
        if self._adds_space and text:
            ids = self._tokenizer.encode("\n" + text, special=special)
            if ids[: len(self._anchor)] == self._anchor:
                return ids[len(self._anchor) :]
        return self._tokenizer.encode(text, special=special)

    def _with_bos(self, ids: Sequence[int]) -> tuple[int, ...]:
        bos = self._tokenizer.bos
        wanted = self._tokenizer.add_bos and bos is not None and (not ids or ids[0] != bos)
        return (bos, *ids) if wanted and bos is not None else tuple(ids)


def _without(chat: Chat, dropped: int, *, system: bool = True) -> Chat:
    """The chat without the first `dropped` messages behind its leading system messages, or without those too."""
    lead = next((i for i, message in enumerate(chat) if message.role != "system"), len(chat))
    return (*(chat[:lead] if system else ()), *chat[lead + dropped :])


def _unused_character(chat: Chat) -> str:
    """A private-use character that no message contains, to build stand-ins with."""
    return next(c for c in map(chr, range(0xE000, 0xF900)) if not any(c in message.content for message in chat))
