"""Between the session, the engine host and the transcript: asks for replies and shows what becomes of them.

Owns no widgets of its own; the chat screen gives it the ones to show things on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from app.chat.conversation import Attachment, Message, pack_origins
from app.chat.engine_host import EngineHost
from app.chat.events import HostNotice, PromptRead, ReplyEnded, ReplyGrew
from app.chat.origins import spans_from
from app.chat.session import ChatSession, GivenBack, Sent
from app.settings import OnContextFull
from app.tui.keys import shown_key
from app.tui.widgets.status import Activity
from app.tui.widgets.transcript import Transcript

LONG_PROMPT = 256
"""Tokens to read before a progress bar is worth showing."""
ELSEWHERE = "a reply is being written in another chat; Esc stops it"
ANOTHER_WINDOW = "another window is writing this reply…"
GONE = "this chat was deleted in another window; a message sent here brings it back"
FORGOTTEN = "· · ·  the model no longer reads what is above this line  · · ·"


class Replies:
    """Sends, regenerates and resends; follows the reply that is being made."""

    def __init__(
        self, session: ChatSession, host: EngineHost, transcript: Transcript, activity: Activity, overflow: Callable[[], OnContextFull]
    ) -> None:
        self._session = session
        self._host = host
        self._transcript = transcript
        self._activity = activity
        self._overflow = overflow
        self._grown = ReplyGrew(0, "", ())
        """All that has come of the reply that is being made."""
        transcript.newest = self._as_grown

    async def send(self, text: str, attachments: Sequence[Attachment]) -> None:
        await self._ask(self._session.send(text, attachments))

    async def resend(self, message_id: int, text: str, attachments: Sequence[Attachment]) -> None:
        """The message written anew, on a branch of its own."""
        await self._ask(self._session.resend(message_id, text, attachments))

    async def regenerate(self, message_id: int | None) -> bool:
        """Another reply; False where there is nothing to reply to."""
        sent = self._session.regenerate(message_id)
        if sent is None:
            return False
        await self._ask(sent)
        return True

    async def _ask(self, sent: Sent) -> None:
        job = self._session.job(self._overflow())
        self._activity.wait("waiting for the engine…")
        self._transcript.cursor = None
        await self.show_path()
        await self._transcript.follow()
        self._host.reply(job)  # at last: what it tells finds the reply on the screen

    async def show_path(self, *, fresh: bool = False) -> None:
        """Have the transcript show the session's path."""
        await self._transcript.show(self._session.path, self._session.branches, fresh=fresh)
        last = next((m for m in reversed(self._session.path) if m.role == "assistant" and m.packed_report), None)
        dropped = (last.report or {}).get("dropped") if last is not None else None
        self._transcript.mark(self._session.first_read(dropped) if isinstance(dropped, int) else None, FORGOTTEN)
        if self._session.sent is not None and not self._transcript.holds(self._session.sent.reply.id):
            self._activity.wait(ELSEWHERE)

    # ---- what other windows do

    async def look_again(self) -> bool:
        """Show what other windows have changed in this chat; whether there was anything. To be called every second."""
        before = self._session.path[-1] if self._session.path else None
        changed = self._session.look_again()
        if changed:
            await self.show_path()
            if self._session.gone:
                self._activity.remark(GONE)
            if before is not None and before.state == "streaming":
                self._go_on(before)
        writing = self._session.written_elsewhere
        if writing and not self._activity.text:
            self._activity.wait(ANOTHER_WINDOW)
        elif not writing and self._activity.text == ANOTHER_WINDOW:
            self._activity.clear()
        return changed

    def _go_on(self, before: Message) -> None:
        """Show more of a reply that another window writes."""
        now = next((message for message in reversed(self._session.path) if message.id == before.id), None)
        view = self._transcript.view(before.id)
        if now is None or view is None:
            return
        if now.state == "streaming":
            view.grow(now.text[len(before.text) :], spans_from(now.origins, len(before.text)))
        else:
            view.finish(now)

    # ---- what the host says

    def read(self, event: PromptRead) -> None:
        if not self._is_ours(event.message_id):
            return
        if event.done >= event.total and not self._activity.has_class("-remark"):
            self._activity.wait("writing…" if self._transcript.holds(event.message_id) else ELSEWHERE)
        elif event.total - event.cached > LONG_PROMPT:
            self._activity.progress("reading the prompt", event.done / event.total, f"{event.done:,} of {event.total:,} tokens")

    def grew(self, event: ReplyGrew) -> None:
        if not self._is_ours(event.message_id):
            return
        before = self._grown if self._grown.message_id == event.message_id else ReplyGrew(event.message_id, "", ())
        self._grown = replace(event, text=before.text + event.text, spans=before.spans + event.spans)
        if (view := self._transcript.view(event.message_id)) is not None:
            view.grow(event.text, event.spans)
        if self._transcript.holds(event.message_id):
            self._activity.clear("progress")

    def _as_grown(self, message: Message) -> Message:
        """With the text as it is now, if it is the reply that is being made."""
        if not self._is_ours(message.id) or self._grown.message_id != message.id:
            return message
        return replace(message, text=self._grown.text, packed_origins=pack_origins(self._grown.spans))

    def noticed(self, event: HostNotice) -> None:
        """One line to read; turns that dropped out of the context are marked where they end."""
        if event.passing:
            self._activity.wait(event.text)
            return
        choice = f" · {shown_key(self._transcript.app, 'settings')} has other ways" if event.dropped else ""
        self._activity.remark(event.text + choice)
        if event.message_id is None or not self._is_ours(event.message_id):
            return
        if event.dropped > 0:
            self._transcript.mark(self._session.first_read(event.dropped), FORGOTTEN)

    async def ended(self, event: ReplyEnded) -> GivenBack | None:
        """The reply is over. What comes back is to be put into the prompt again."""
        ours = self._is_ours(event.message_id)
        ended = self._session.end(event)
        if ours:
            self._activity.clear("progress")
            if event.state == "context" and self._overflow() == "stop":
                key = shown_key(self._transcript.app, "settings")
                self._activity.remark(f"the context is full; {key} can have the oldest turns left out or summarised")
        if ended.message is None:
            if ours:
                await self.show_path()
            return ended.given_back
        self._transcript.replace(ended.message)
        if (view := self._transcript.view(ended.message.id)) is not None:
            view.finish(ended.message)
        await self.show_path()  # another window may have gone on below it
        return None

    def name_chat(self, *, by_model: bool) -> None:
        """The open chat's title, if it has none: from the model when it has nothing else to do, or else the user's first words."""
        from app.chat.title import title_from_prompt

        job = self._session.title_job()
        if job is None:
            return
        if by_model:
            self._host.title(job)
        elif title := title_from_prompt(job.messages):
            self._session.take_title(job.chat_id, title)

    def _is_ours(self, message_id: int) -> bool:
        return self._session.sent is not None and self._session.sent.reply.id == message_id

