"""What can be done with a message of the chat: copy, edit, branch, delete. Works on the message under the cursor."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from app.chat.conversation import Attachment, Message
from app.tui import clipboard
from app.tui.keys import shown_key
from app.tui.replies import Replies
from app.tui.screens.chat_dialogs import refusable
from app.tui.screens.message_menu import ENTRIES, MessageMenu

if TYPE_CHECKING:
    from app.tui.screens.chat import ChatScreen


class MessageActions:
    """The screen's hand for single messages. Its actions are commands (see app/tui/commands.py)."""

    def __init__(self, screen: ChatScreen, replies: Replies) -> None:
        self._screen = screen
        self._replies = replies
        self.tell = screen.tell
        self._editing: int | None = None
        """The message of the user that the prompt's text replaces."""
        self._copied: tuple[int, int] = (0, 0)
        """Message and number of the code block copied last."""
        self._copying: set[asyncio.Task[None]] = set()

    async def do(self, what: str) -> None:
        """Do what a key on the transcript asks for."""
        message = self._screen.transcript.selected
        if what == "undo":
            await self.action_undo()
        elif message is None:
            self._say("pick a message first: up and down")
        elif what == "menu":
            self._open_menu(message)
        elif what == "copy":
            self.copy(self._text_of(message))
        elif what == "copy_code":
            self._copy_code(message)
        elif what == "edit":
            await self.action_edit()
        elif what == "another":
            await self._screen.action_regenerate()
        elif what == "branch":
            await self.action_branch()
        elif what == "delete":
            await self._delete(message)
        elif what in ("previous_branch", "next_branch"):
            await self._step_branch(message, 1 if what == "next_branch" else -1)
        elif what == "unfold" and (view := self._screen.transcript.view(message.id)) is not None:
            view.toggle_unfolded()

    def _open_menu(self, message: Message) -> None:
        view = self._screen.transcript.view(message.id)
        without = {
            "copy_code": view is None or view.reply is None or not view.reply.code_blocks,
            "edit": message.kind == "summary",
            "another": message.kind == "summary",
            "unfold": view is None or not view.is_long,
            "undo": not self._screen.session.can_undo,
        }
        entries = sorted((id for id in ENTRIES if not without.get(id)), key=lambda id: id != "unfold")
        self._screen.app.push_screen(MessageMenu("Your message" if message.role == "user" else "Reply", entries), self._chosen)

    def _chosen(self, what: str | None) -> None:
        if what is not None:
            self._screen.transcript.action_want(what)

    # ---- copying

    def copy(self, text: str) -> None:
        """Copy a text and say so. A clipboard program may take its time: not on this thread."""
        task = asyncio.create_task(self._copy(text))
        self._copying.add(task)
        task.add_done_callback(self._copying.discard)

    async def _copy(self, text: str) -> None:
        app = self._screen.app
        told = await asyncio.to_thread(
            clipboard.copy, text, lambda sent: app.call_from_thread(app.copy_to_clipboard, sent), self._screen.paths.chats
        )
        self._screen.notify(told, markup=False)

    def action_copy(self) -> None:
        """Copy the last reply of the path, without its thinking."""
        last = next((m for m in reversed(self._screen.session.path) if m.role == "assistant"), None)
        if last is None:
            self._say("there is no reply yet")
        else:
            self.copy(self._text_of(last))

    def _copy_code(self, message: Message) -> None:
        """Copy the message's last code block; again: the one before it."""
        view = self._screen.transcript.view(message.id)
        blocks = view.reply.code_blocks if view is not None and view.reply is not None else ()
        if not blocks:
            self._say("this message has no code block")
            return
        copied, at = self._copied
        at = (at - 1) % len(blocks) if copied == message.id else len(blocks) - 1
        self._copied = (message.id, at)
        self.copy(blocks[at])

    def _text_of(self, message: Message) -> str:
        view = self._screen.transcript.view(message.id)
        return view.text if view is not None else message.text

    # ---- editing and sending

    async def send(self, text: str, attachments: tuple[Attachment, ...]) -> None:
        """Send what is in the prompt: new, or in the place of the message that is edited."""
        editing, self._editing = self._editing, None
        if editing is not None and any(message.id == editing for message in self._screen.session.path):
            await self._replies.resend(editing, text, attachments)
        else:
            await self._replies.send(text, attachments)

    @refusable
    async def action_edit(self) -> None:
        """Take the selected message of the user, or the last one, into the prompt; sending it makes a branch."""
        session, selected = self._screen.session, self._screen.transcript.selected
        if session.replying:
            self._say("a reply is being written; Esc stops it")
            return
        until = session.path.index(selected) + 1 if selected in session.path else len(session.path)
        mine = next((m for m in reversed(session.path[:until]) if m.role == "user" and m.kind == "message"), None)
        if mine is None:
            self._say("there is no message of yours to edit")
            return
        self._editing = mine.id
        aside = self._screen.prompt.load_over(mine.text, mine.attachments)
        self._screen.prompt.focus()
        back = f" · {shown_key(self._screen.app, 'earlier_prompt')} brings back what you were writing" if aside else ""
        self._screen.activity.remark(f"editing an earlier message: sending makes a branch{back}")

    @refusable
    async def action_branch(self) -> None:
        """Go on from the selected message, or the last one, in a chat of its own, which begins with a copy of all that is above."""
        session = self._screen.session
        if session.replying:
            self._say("a reply is being written; Esc stops it")
        elif session.chat is None or not session.path:
            self._say("there is nothing to branch from yet")
        else:
            self._screen.keep_unsent()
            await self._screen.dialogs.open_chat(session.copy_until((self._screen.transcript.selected or session.path[-1]).id))
            self._say("this is the new chat; the old one is as it was")

    # ---- the tree

    async def _delete(self, message: Message) -> None:
        session = self._screen.session
        if session.replying:
            self._say("a reply is being written; Esc stops it")
            return
        at = session.path.index(message)
        session.delete(message.id)
        await self._screen.show_path()
        if at > 0 and at - 1 < len(session.path):
            await self._screen.transcript.go_to(session.path[at - 1].id)
        self._say(f"deleted with what followed; {shown_key(self._screen.app, 'undo_message') or '/undo'} brings it back")

    @refusable
    async def action_undo(self) -> None:
        """Bring back what was deleted last: in this chat, or else chats."""
        session = self._screen.session
        if session.replying:
            self._say("a reply is being written; Esc stops it")
            return
        restored = session.undo()
        if restored is None and (count := session.undo_chats()):
            await self._screen.show_chat()
            if count > 1:
                self._say(f"{count} chats are back; this is one of them")
            return
        if restored is None:
            self._say("there is nothing to undo")
            return
        await self._screen.show_path()
        await self._screen.transcript.go_to(restored)

    async def _step_branch(self, message: Message, step: int) -> None:
        if self._screen.session.replying:
            self._say("a reply is being written; Esc stops it")
            return
        shown = self._screen.session.step_branch(message.id, step)
        if shown is not None:
            await self._screen.show_path()
            await self._screen.transcript.go_to(shown)

    async def go_to(self, message_id: int) -> None:
        """Select a message of this chat, on whatever branch it is."""
        session = self._screen.session
        if all(message.id != message_id for message in session.path):
            if session.replying:
                return
            session.show(message_id)
            await self._screen.show_path()
        await self._screen.transcript.go_to(message_id)

    def _say(self, line: str) -> None:
        self._screen.notify(line, markup=False)
