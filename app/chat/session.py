"""One chat as it is worked on: sending, regenerating, editing, branching, deleting with undo. No widgets.

Several windows may have the same chat open: each keeps the branch it shows, and takes up what the others add to it.

Every message of the user is in the store before a reply is asked for. When the store takes nothing more (a full disk, a
read-only home), the session goes on with a copy in memory and says so once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from app.chat.attachments import compose_message
from app.chat.conversation import Attachment, Chat, Message, pack_origins
from app.chat.events import ReplyEnded, SummaryMade
from app.chat.jobs import ReplyJob, TitleJob
from app.errors import AppError
from app.settings import ChatSettings, OnContextFull
from app.store import ChatStore, StoreError
from app.store.errors import NotFound

if TYPE_CHECKING:
    from engine import ChatMessage

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Sent:
    """A reply that was asked for, and what the user wrote for it (None: nothing new, as in regenerating)."""

    reply: Message
    prompt: Message | None = None


@dataclass(frozen=True, slots=True)
class GivenBack:
    """A prompt that comes back to be edited, because its reply was stopped before it began."""

    text: str
    attachments: tuple[Attachment, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a reply ended. `message` is None when nothing is left of it."""

    message: Message | None
    given_back: GivenBack | None = None


class ChatSession:
    """The chat that is open. `chat` is None until the first message of a new one is sent."""

    def __init__(self, store: ChatStore, defaults: ChatSettings, on_memory: Callable[[str], None]) -> None:
        """`on_memory` is told, in one line, why the chats are kept in memory from now on."""
        self.store = store
        self.defaults = defaults
        """What a new chat starts with."""
        self._on_memory = on_memory
        self._new_settings = defaults
        self.chat: Chat | None = None
        self.path: list[Message] = []
        """The branch shown."""
        self.branches: dict[int, list[int]] = {}
        """The messages of the path that have siblings, each with all of them."""
        self.sent: Sent | None = None
        """The reply that is being made."""
        self._deleted: list[tuple[int, int]] = []
        """Chat and message of each deletion that can be undone."""
        self.deleted_chats: list[list[int]] = []
        """The chats that each deletion of chats took, the last one at the end."""
        self._stamp: tuple[object, ...] = ()
        """Of the chat as it is shown; see ChatStore.stamp."""
        self._retitled: int | None = None
        """The chat that another title was asked for, in the place of the one it has."""
        self.gone = False
        """The chat was deleted in another window. It stays on the screen, and comes back with the next message."""

    # ---- which chat

    @property
    def settings(self) -> ChatSettings:
        """Of the chat, or of the one that the next message starts."""
        return self.chat.settings if self.chat is not None else self._new_settings

    def set_settings(self, settings: ChatSettings) -> None:
        if self.chat is None:
            self._new_settings = settings
        else:
            chat_id = self.chat.id
            self._do(lambda store: store.set_settings(chat_id, settings))
            self.chat = replace(self.chat, settings=settings)

    def start_new(self, settings: ChatSettings | None = None) -> None:
        """An empty chat, stored with its first message."""
        self.chat, self.path, self.branches, self.gone = None, [], {}, False
        self._new_settings = settings if settings is not None else self.defaults

    def open(self, chat_id: int) -> None:
        """Show a stored chat. Raises NotFound."""
        self.chat, self.path = self._do(lambda store: store.chat(chat_id)), []
        self.refresh()

    def refresh(self, through: int | None = None) -> None:
        """Read the chat again, and the branch with the message `through`, or else the one that is shown. Raises NotFound for
        a chat that was deleted."""
        if self.chat is not None:
            chat_id = self.chat.id
            if through is None and self.path:
                through = self.path[-1].id
            self.chat = self._do(lambda store: store.chat(chat_id))
            self.path = self._do(lambda store: store.path(chat_id, through))
            leaf = self.path[-1].id if self.path else None
            self.branches = self._do(lambda store: store.branches(chat_id, leaf))
            self._stamp = self._do(lambda store: store.stamp(chat_id, leaf))
            self.gone = False

    def look_again(self) -> bool:
        """Take up what other windows have changed in the chat that is open; whether there was anything. Quick: to be called
        every second. While a reply is made here, nothing is taken up."""
        if self.chat is None or not self.store.persistent or (self.sent is not None and self.sent.reply.chat_id == self.chat.id):
            return False
        if self.written_elsewhere:
            self._do(lambda store: store.mark_interrupted())
        chat_id, leaf = self.chat.id, self.path[-1].id if self.path else None
        stamp = self._do(lambda store: store.stamp(chat_id, leaf))
        if stamp == self._stamp:
            return False
        self.refresh_if_shown(chat_id)
        self._stamp = stamp if self.gone else self._stamp
        return True

    @property
    def written_elsewhere(self) -> bool:
        """Whether the last reply shown is being written by another window."""
        return bool(self.path) and self.path[-1].state == "streaming" and (self.sent is None or self.sent.reply.id != self.path[-1].id)

    def rename(self, title: str) -> None:
        """Give the chat a title; a new one is stored for it."""
        chat = self._stored()
        self._do(lambda store: store.rename(chat.id, title))
        self.chat = replace(chat, title=title)

    def take_title(self, chat_id: int, title: str) -> None:
        """Give a chat the title that was made for it, unless it has got one meanwhile and no other was asked for."""
        with suppress(NotFound):  # deleted in the meantime
            if chat_id == self._retitled or not self._do(lambda store: store.chat(chat_id)).title:
                self._do(lambda store: store.rename(chat_id, title))
            self._retitled = None
        self.refresh_if_shown(chat_id)

    def keep_unsent(self, text: str) -> None:
        """Keep what stands in the prompt. A new chat is stored for it, unless there is nothing to keep."""
        if self.chat is None and not text.strip():
            return
        chat = self._stored()
        if chat.unsent != text:
            with suppress(NotFound):  # the chat was erased by another window: there is nothing to keep it with
                self._do(lambda store: store.set_unsent(chat.id, text))
            self.chat = replace(chat, unsent=text)

    # ---- sending

    @property
    def replying(self) -> bool:
        return self.sent is not None

    def send(self, text: str, attachments: Sequence[Attachment] = ()) -> Sent:
        """Store the user's message at the end of the path and start the reply to it. Raises AppError while another window
        writes there."""
        self.look_again()
        if self.written_elsewhere:
            raise AppError("another window is writing a reply in this chat; it goes on here when that is done")
        chat = self._stored()
        parent = self.path[-1].id if self.path else None
        return self._ask(chat, parent, text, attachments)

    def resend(self, message_id: int, text: str, attachments: Sequence[Attachment] = ()) -> Sent:
        """The user's message, written anew: a branch beside the old one. Start the reply to it."""
        old = self.store.message(message_id)
        return self._ask(self._stored(), old.parent_id, text, attachments)

    def regenerate(self, message_id: int | None = None) -> Sent | None:
        """Another reply beside that one (or to that message of the user, or the last reply); None if there is nothing to
        reply to."""
        at = self._index(message_id) if message_id is not None else len(self.path) - 1
        while at >= 0 and not (self.path[at].role == "user" and self.path[at].kind == "message"):
            at -= 1
        if at < 0:
            return None
        asked, chat = self.path[at], self._stored()
        reply = self._do(lambda store: store.start_reply(chat.id, asked.id))
        self.sent = Sent(reply)
        self.refresh(reply.id)
        return self.sent

    def _ask(self, chat: Chat, parent: int | None, text: str, attachments: Sequence[Attachment]) -> Sent:
        prompt = self._do(lambda store: store.add_message(chat.id, parent, "user", text, attachments))
        reply = self._do(lambda store: store.start_reply(chat.id, prompt.id))
        self._do(lambda store: store.set_unsent(chat.id, ""))
        self.sent = Sent(reply, prompt)
        self.refresh(reply.id)
        return self.sent

    def job(self, overflow: OnContextFull) -> ReplyJob:
        """The engine's job for the reply that was started."""
        assert self.sent is not None
        reply = self.sent.reply
        return ReplyJob(reply.chat_id, reply.id, self._read_by_model(self._index(reply.id)), self.settings, overflow)

    def title_job(self, *, again: bool = False) -> TitleJob | None:
        """The engine's job for a title of this chat; None if it has one (and none is wanted `again`), or nothing was said
        yet."""
        if self.chat is None or (self.chat.title and not again) or len(self.path) < 2 or not self.path[-1].text:
            return None
        self._retitled = self.chat.id if again else None
        return TitleJob(self.chat.id, self._read_by_model(len(self.path)))

    def _read_by_model(self, until: int) -> tuple[ChatMessage, ...]:
        """The system prompt, and what stands on the path before `until`, from the last summary on."""
        from engine import ChatMessage

        system = self.settings.system
        turns = [ChatMessage(m.role, compose_message(m.text, m.attachments)) for m in _since_summary(self.path[:until])]
        return (*([ChatMessage("system", system)] if system else []), *turns)

    @property
    def read(self) -> list[Message]:
        """The messages of the path that the model is given."""
        return _since_summary(self.path)

    def first_read(self, dropped: int) -> int | None:
        """Where the model begins to read if it is not given the `dropped` oldest messages; None if that is plain."""
        turns = [message for message in self.read if message.role != "system"]
        return turns[dropped].id if 0 < dropped < len(turns) else None

    def moved(self, event: SummaryMade) -> None:
        """Older turns were summarised: the reply that is being made goes by another id from now on."""
        if self.sent is not None and self.sent.reply.id == event.instead_of:
            prompt = self._do(lambda store: store.message(event.prompt_id)) if self.sent.prompt is not None else None
            self.sent = Sent(self._do(lambda store: store.message(event.reply_id)), prompt)
        self.refresh_if_shown(event.chat_id)

    def end(self, event: ReplyEnded) -> Ended:
        """Take note that a reply is over. One that was stopped before it began is as if never asked for: the prompt comes
        back, or stays as a message if another chat is shown by now."""
        sent = self.sent if self.sent is not None and self.sent.reply.id == event.message_id else None
        if sent is not None:
            self.sent = None
        if not event.stored:
            self._do(lambda store: store.finish_reply(event.message_id, event.text, event.spans, event.state, event.report))
        if sent is None:
            return Ended(None)
        if event.state == "cancelled" and not event.text.strip():
            prompt = sent.prompt if self.chat is not None and self.chat.id == sent.reply.chat_id else None
            unwanted = prompt if prompt is not None else sent.reply
            with suppress(NotFound):  # deleted in another window meanwhile
                self._do(lambda store: store.delete_message(unwanted.id))
            self.refresh_if_shown(unwanted.chat_id)
            return Ended(None, GivenBack(prompt.text, prompt.attachments) if prompt is not None else None)
        message = replace(sent.reply, text=event.text, packed_origins=pack_origins(event.spans), state=event.state)
        if self.chat is not None and self.chat.id == message.chat_id:
            self.refresh_if_shown(message.chat_id)
            if self.gone:
                self.path = [message if m.id == message.id else m for m in self.path]
            message = next((m for m in self.path if m.id == message.id), message)
        return Ended(message)

    def refresh_if_shown(self, chat_id: int) -> None:
        """Read the chat again if it is the one that is open. One that was deleted stays as it is shown: see `gone`."""
        if self.chat is not None and self.chat.id == chat_id:
            try:
                self.refresh()
            except NotFound:
                self.gone = True

    # ---- branches, deleting

    def branch(self, message_id: int) -> tuple[int, int]:
        """Which of how many siblings the message is, from 1."""
        siblings = self.branches.get(message_id, [message_id])
        return siblings.index(message_id) + 1, len(siblings)

    def step_branch(self, message_id: int, step: int) -> int | None:
        """Show the sibling `step` places further; its id, or None if there is none."""
        siblings = self.branches.get(message_id, [message_id])
        at = siblings.index(message_id) + step
        if not 0 <= at < len(siblings):
            return None
        self.show(siblings[at])
        return siblings[at]

    def show(self, message_id: int) -> None:
        """Show the branch that this message is on."""
        self._do(lambda store: store.select(message_id))
        self.refresh(message_id)

    def copy_until(self, message_id: int) -> int:
        """A new chat that begins with a copy of the path down to that message; its id."""
        assert self.chat is not None
        kept = self.path[: self._index(message_id) + 1]
        title = f"{self.chat.title} (branch)" if self.chat.title else ""
        copy = replace(self.chat, title=title, pinned=False, unsent="", leaf_id=message_id)
        return self._do(lambda store: store.insert_chat(copy, kept))

    def delete(self, message_id: int) -> None:
        """Delete a message and all below it; `undo` brings them back."""
        assert self.chat is not None
        leaf = self.path[-1].id
        self._do(lambda store: store.select(leaf))  # another window may show another branch: what is shown then is beside this one
        self._do(lambda store: store.delete_message(message_id))
        self._deleted.append((self.chat.id, message_id))
        self.refresh()

    def delete_chat(self) -> None:
        """Delete the chat that is open, and start a new one; `undo_chats` brings it back."""
        assert self.chat is not None
        chat_id = self.chat.id
        self._do(lambda store: store.delete_chats([chat_id]))
        self.deleted_chats.append([chat_id])
        self.start_new()

    def undo_chats(self) -> int:
        """Bring back the chats that were deleted last, and open the first of them; how many there were."""
        if not self.deleted_chats:
            return 0
        back = self.deleted_chats.pop()
        self._do(lambda store: store.restore_chats(back))
        self.open(back[0])
        return len(back)

    @property
    def can_undo(self) -> bool:
        """Whether anything was deleted in this chat that can be brought back."""
        return self.chat is not None and any(chat_id == self.chat.id for chat_id, _ in self._deleted)

    def undo(self) -> int | None:
        """Take the last deletion in this chat back; the message's id, or None if there is nothing to undo."""
        for at in range(len(self._deleted) - 1, -1, -1):
            chat_id, message_id = self._deleted[at]
            if self.chat is not None and chat_id == self.chat.id:
                del self._deleted[at]
                self._do(lambda store: store.restore_message(message_id))  # noqa: B023 - called at once
                self.refresh(message_id)
                return message_id
        return None

    def find(self, text: str) -> list[int]:
        """The messages of this chat, on any branch, that hold every word; first to last."""
        if self.chat is None:
            return []
        chat_id = self.chat.id
        return sorted(hit.message_id for hit in self._do(lambda store: store.search(text, chat_id, limit=1000)))

    # ---- the store

    def go_to_memory(self, why: str) -> None:
        """The store on disk takes nothing more: go on with its chats in memory."""
        if self.store.persistent:
            self.store = self.store.to_memory()
            self._on_memory(why)

    def _stored(self) -> Chat:
        """The chat, stored now if it was not yet."""
        if self.chat is None:
            self.chat = self._do(lambda store: store.new_chat(self._new_settings))
        return self.chat

    def _index(self, message_id: int) -> int:
        return next(at for at, message in enumerate(self.path) if message.id == message_id)

    def _do(self, call: Callable[[ChatStore], Result]) -> Result:
        """Call the store; if it fails, once more with its copy in memory. Raises NotFound."""
        try:
            return call(self.store)
        except NotFound:
            raise
        except StoreError as error:
            if not self.store.persistent:
                raise
            self.go_to_memory(str(error))
            return call(self.store)


def _since_summary(path: Sequence[Message]) -> list[Message]:
    """The last summary and what is below it, or everything; without what has no text (a reply that is being made)."""
    first = max((at for at, message in enumerate(path) if message.kind == "summary"), default=0)
    return [message for message in path[first:] if message.text or message.attachments]
