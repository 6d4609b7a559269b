"""Which keys the status line names: those that matter now, as the user has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.tui.keys import shown_key

if TYPE_CHECKING:
    from app.tui.screens.chat import ChatScreen


def hints_for(screen: ChatScreen) -> tuple[tuple[str, str], ...]:
    """Keys and words, the most important first."""
    if screen.focused is screen.transcript:
        wanted = [("message_menu", "copy, edit …"), ("previous_branch", "branch"), ("delete_message", "delete"), ("cancel", "prompt")]
    elif screen.session.replying:
        wanted = [("cancel", "stop"), ("thinking", "thinking"), ("help", "help")]
    else:
        wanted = [("help", "help"), ("cancel", "messages"), ("history", "chats"), ("new_chat", "new")]
    if not screen.transcript.following:
        wanted.insert(0, ("newest", "newest"))
    keys = [(shown_key(screen.app, id), words) for id, words in wanted]
    return tuple((key, words) for key, words in keys if key)
