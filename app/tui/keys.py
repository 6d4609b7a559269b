"""The key map: which keys do what, and the user's own keys instead.

Every binding of the app has an id from `KEYS`; `bind` makes the Binding, so that a key, its words and its id stand in one
place. The user's `[keys]` table of settings.toml gives an id other keys; what cannot work is told and left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from textual.app import App
from textual.binding import Binding
from textual.keys import Keys, key_to_character
from textual.widgets import TextArea

Where = Literal["everywhere", "chat", "prompt", "message", "menu", "list"]
"""Where a binding works. `everywhere` and `chat` are heard while the prompt has the focus; `message` (one is picked), `menu` (of
that message) and `list` (every screen over the chat) are not. Typing over the messages is for the prompt, so no letter means
anything there."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """The keys of one binding id, comma-separated as Textual writes them, and what they do in a few words."""

    keys: str
    words: str
    where: Where


KEYS: dict[str, KeyEntry] = {
    "help": KeyEntry("f1", "Help", "everywhere"),
    "quit": KeyEntry("ctrl+q", "Quit", "everywhere"),
    "palette": KeyEntry("ctrl+p", "All commands", "everywhere"),
    "settings": KeyEntry("f10", "Settings", "everywhere"),
    "new_chat": KeyEntry("ctrl+n", "New chat", "chat"),
    "history": KeyEntry("ctrl+o", "Open a chat", "chat"),
    "find": KeyEntry("ctrl+f", "Find in this chat", "chat"),
    "models": KeyEntry("f3", "Models", "chat"),
    "reload": KeyEntry("f5", "Load the model again", "chat"),
    "rename": KeyEntry("f2", "Rename the chat", "chat"),
    "system": KeyEntry("f4", "System prompt and sampling", "chat"),
    "details": KeyEntry("f8", "Details of the chat", "chat"),
    "cancel": KeyEntry("escape", "Stop the reply", "chat"),
    "regenerate": KeyEntry("ctrl+r", "Another reply", "chat"),
    "pace": KeyEntry("ctrl+g,f9", "Pace panel", "chat"),
    "origins": KeyEntry("f11", "Colour by origin", "chat"),
    "thinking": KeyEntry("ctrl+t", "Show or fold thinking", "chat"),
    "copy_reply": KeyEntry("f12", "Copy the last reply", "chat"),
    "older": KeyEntry("pageup,shift+pageup", "Scroll up", "chat"),
    "newer": KeyEntry("pagedown,shift+pagedown", "Scroll down", "chat"),
    "oldest": KeyEntry("ctrl+home", "First message", "chat"),
    "newest": KeyEntry("ctrl+end", "Last message", "chat"),
    "send": KeyEntry("enter", "Send", "prompt"),
    "newline": KeyEntry("ctrl+j,alt+enter,shift+enter", "New line", "prompt"),
    "earlier_prompt": KeyEntry("ctrl+up", "Earlier prompt (also ↑ on the first line)", "prompt"),
    "later_prompt": KeyEntry("ctrl+down", "Later prompt (also ↓ on the last line)", "prompt"),
    "complete": KeyEntry("tab", "Take the completion", "prompt"),
    "drop_attachment": KeyEntry("f6", "Leave out the last attachment", "prompt"),
    "message_menu": KeyEntry("enter", "What can be done with the message", "message"),
    "previous_branch": KeyEntry("left", "Previous branch", "message"),
    "next_branch": KeyEntry("right", "Next branch", "message"),
    "delete_message": KeyEntry("delete", "Delete", "message"),
    "undo_message": KeyEntry("ctrl+z", "Undo the last delete", "message"),
    "copy": KeyEntry("c", "Copy the message", "menu"),
    "copy_code": KeyEntry("y", "Copy its code, block by block", "menu"),
    "edit": KeyEntry("e", "Edit and send again", "menu"),
    "another": KeyEntry("r", "Another reply", "menu"),
    "branch": KeyEntry("b", "Branch into a new chat", "menu"),
    "unfold": KeyEntry("f", "Unfold or fold a long text", "menu"),
    "delete": KeyEntry("d", "Delete with what follows", "menu"),
    "undo": KeyEntry("u", "Undo the last delete", "menu"),
    "close": KeyEntry("escape", "Close", "list"),
    "save": KeyEntry("ctrl+s", "Save", "list"),
    "list_search": KeyEntry("slash", "Search", "list"),
    "list_new": KeyEntry("n", "New", "list"),
    "list_change": KeyEntry("c", "Change", "list"),
    "list_mark": KeyEntry("space", "Mark", "list"),
    "list_rename": KeyEntry("r", "Rename", "list"),
    "list_pin": KeyEntry("p", "Pin", "list"),
    "list_tag": KeyEntry("t", "Tag", "list"),
    "list_delete": KeyEntry("d,delete", "Delete", "list"),
    "list_undo": KeyEntry("u", "Undo", "list"),
    "list_export": KeyEntry("e", "Export", "list"),
    "list_import": KeyEntry("i", "Import", "list"),
    "list_details": KeyEntry("f8", "Details", "list"),
    "list_context": KeyEntry("x", "Context", "list"),
    "list_draft": KeyEntry("w", "Draft", "list"),
}

_HEARD_TOGETHER: dict[Where, frozenset[Where]] = {
    "everywhere": frozenset(("everywhere", "chat", "prompt", "message", "menu", "list")),
    "chat": frozenset(("everywhere", "chat", "prompt", "message")),
    "prompt": frozenset(("everywhere", "chat", "prompt")),
    "message": frozenset(("everywhere", "chat", "message")),
    "menu": frozenset(("everywhere", "menu")),
    "list": frozenset(("everywhere", "list")),
}
_MODIFIERS = frozenset(("ctrl", "alt", "shift", "super", "hyper", "meta"))
_SAME_BYTE = {"ctrl+m": "enter", "ctrl+i": "tab", "ctrl+h": "backspace", "ctrl+left_square_bracket": "escape"}
"""What older terminals cannot tell apart."""


def bind(id: str, action: str, *, show: bool = False, priority: bool = False) -> Binding:
    """The Binding with the keys and words of `id`; KeyError for one that is not in the map."""
    entry = KEYS[id]
    return Binding(entry.keys, action, entry.words, show=show, priority=priority, id=id)


def checked(own: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Those of the user's keys that work, and one line for each that does not."""
    problems = {id: problem for id, keys in own.items() if (problem := _problem_alone(id, keys))}
    kept = {id: keys for id, keys in own.items() if id not in problems}
    while rivalry := next(((id, problem) for id in kept if (problem := _conflict(id, kept))), None):
        id, problems[id] = rivalry  # without it its own default holds again, which others may be in the way of
        del kept[id]
    return kept, list(problems.values())


def apply_keys(app: App[Any], own: Mapping[str, str]) -> list[str]:
    """Give the app the user's keys. One line for each that cannot work; its default stays."""
    kept, problems = checked(own)
    app.set_keymap(kept)
    return problems


def keys_of(id: str, own: Mapping[str, str]) -> list[str]:
    """The keys of a binding in Textual's long form, as the user has them."""
    keys = own.get(id) or KEYS[id].keys
    return [_SAME_BYTE.get(key, key) for key in map(_long_form, keys.split(","))]


def _problem_alone(id: str, keys: str) -> str | None:
    if id not in KEYS:
        return f"keys.{id}: nothing has that name; the help screen lists the names"
    where = KEYS[id].where
    for key in keys.split(","):
        if not _is_key(key.strip()):
            return f"keys.{id}: {key.strip()!r} is not a key; write it as in ctrl+n, f5 or shift+pageup"
        if where in ("everywhere", "chat", "prompt", "message") and key_to_character(_long_form(key)) is not None:
            return f"keys.{id}: {key.strip()!r} is a character to type; add ctrl or alt, or take a function key"
        if where in ("everywhere", "chat") and (words := _EDITING.get(_long_form(key))):
            return f"keys.{id}: {key.strip()} edits the prompt ({words.lower()}); take another key"
    return None


def _conflict(id: str, kept: Mapping[str, str]) -> str | None:
    """What else the keys of `id` would do at the same place."""
    wanted = set(keys_of(id, kept))
    for other, entry in KEYS.items():
        if other != id and entry.where in _HEARD_TOGETHER[KEYS[id].where] and (taken := wanted & set(keys_of(other, kept))):
            return f"keys.{id}: {min(taken)} is taken by {other} ({entry.words.lower()})"
    return None


def _is_key(key: str) -> bool:
    *modifiers, name = ["+"] if key == "+" else key.split("+")
    known = len(name) == 1 or name in _NAMED or key_to_character(name) is not None
    return bool(name) and known and set(modifiers) <= _MODIFIERS and len(set(modifiers)) == len(modifiers)


def _long_form(key: str) -> str:
    """`ctrl+?` as Textual names it in events: `ctrl+question_mark`."""
    return next(iter(Binding.make_bindings([Binding(key.strip(), "", "")]))).key


_NAMED = frozenset(key.value for key in Keys)
_EDITING: dict[str, str] = {
    binding.key: binding.description
    for declared in TextArea.BINDINGS
    if isinstance(declared, Binding)
    for binding in Binding.make_bindings([declared])
    if binding.key not in keys_of("drop_attachment", {})
}
"""Keys the prompt's editor uses itself."""


def shown_key(app: App[Any], id: str) -> str:
    """The first key of a binding that is active now, as it is written for the user; empty if it is not active."""
    return next((written(key) for key, active in app.screen.active_bindings.items() if active.binding.id == id), "")


def written(key: str) -> str:
    """A key as it is written for the user: `Ctrl+Q`, `PgUp`, and `n` for the letter alone."""
    *modifiers, name = key.split("+")
    character = _WRITTEN.get(name) or key_to_character(name) or name.capitalize()
    return "+".join([*(part.capitalize() for part in modifiers), character.upper() if modifiers and len(name) == 1 else character])


_WRITTEN = {
    "escape": "Esc", "up": "↑", "down": "↓", "left": "←", "right": "→", "pageup": "PgUp", "pagedown": "PgDn", "delete": "Del",
    "tab": "Tab", "space": "Space", "slash": "/",
}
