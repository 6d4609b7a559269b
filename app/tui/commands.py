"""The `/` commands: one registry for completion, the help screen and the command palette.

A command is a name for an action method of the chat screen, a part of it or the app: `/rename Plans` calls
`action_rename("Plans")`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from typing import Any

from textual.app import App
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.screen import Screen


@dataclass(frozen=True, slots=True)
class Command:
    """`/name argument`. `argument` is the hint for it, in angle brackets where it must be given."""

    name: str
    words: str
    action: str
    """Without the `action_` in front."""
    argument: str = ""
    key: str = ""
    """Id of the binding that does the same, if there is one."""

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.argument}".rstrip()

    @property
    def needs_argument(self) -> bool:
        return self.argument.startswith("<")


COMMANDS: tuple[Command, ...] = (
    Command("new", "Start a new chat", "new_chat", key="new_chat"),
    Command("history", "Open a chat, or search all of them", "history", "[words]", key="history"),
    Command("search", "Search in this chat", "find", "[words]", key="find"),
    Command("rename", "Rename this chat", "rename", "[title]", key="rename"),
    Command("title", "Let the model name this chat", "make_title"),
    Command("model", "Choose the models", "models", "[name]", key="models"),
    Command("reload", "Load the model again", "reload", key="reload"),
    Command("system", "System prompt and sampling of this chat", "system", "[text]", key="system"),
    Command("preset", "Use, make or change a preset", "preset", "[name]"),
    Command("settings", "Theme, keys and what new chats start with", "settings", key="settings"),
    Command("attach", "Attach a text file", "attach", "<path>"),
    Command("regenerate", "Another reply to the last message", "regenerate", key="regenerate"),
    Command("edit", "Edit your last message and send it again", "edit"),
    Command("branch", "Go on from here in a new chat", "branch"),
    Command("copy", "Copy the last reply", "copy", key="copy_reply"),
    Command("delete", "Delete this chat", "delete"),
    Command("undo", "Undo the last delete", "undo"),
    Command("export", "Save this chat as Markdown or JSON", "export", "[file]"),
    Command("import", "Read chats from Paceline, ChatGPT or LM Studio", "import", "<file>"),
    Command("pace", "Show or hide the pace panel", "pace", key="pace"),
    Command("origins", "Colour replies by who proposed each token", "origins", key="origins"),
    Command("thinking", "Show or fold thinking", "thinking", key="thinking"),
    Command("details", "Numbers, tags and branches of this chat", "details", key="details"),
    Command("help", "Keys and commands", "help", key="help"),
    Command("quit", "Leave Paceline", "quit", key="quit"),
)
"""In the order they are listed."""

_BY_NAME = {command.name: command for command in COMMANDS}
_FIRST_WORD = re.compile(r"/([a-z]+)(?:\s+(.*))?\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Given:
    """A command as it was typed."""

    command: Command
    argument: str


class CommandProblem(ValueError):
    """The line is a command that cannot be carried out as it stands; one line says why."""


def parse(text: str) -> Given | None:
    """The command a prompt's text is, or None for a message (a path such as `/etc/hosts` too, or `//` for a slash).

    Raises CommandProblem.
    """
    found = _FIRST_WORD.match(text.strip())
    if found is None or "\n" in text.strip():
        return None
    name, argument = found[1], (found[2] or "").strip()
    command = _BY_NAME.get(name) or _only_match(name)
    if command is None:
        raise CommandProblem(f"there is no command /{name}; / alone lists them all, // sends a slash")
    if command.needs_argument and not argument:
        raise CommandProblem(f"/{command.name} needs something to go on: {command.usage}")
    if argument and not command.argument:
        raise CommandProblem(f"/{command.name} takes nothing after it")
    return Given(command, argument)


def matching(typed: str) -> Sequence[Command]:
    """The commands to offer for what is typed after the slash: by beginning, then by any part of name or words."""
    typed = typed.lower()
    first = [command for command in COMMANDS if command.name.startswith(typed)]
    then = [command for command in COMMANDS if command not in first and typed in command.name]
    last = [c for c in COMMANDS if c not in first and c not in then and len(typed) > 2 and typed in c.words.lower()]
    return [*first, *then, *last]


def _only_match(beginning: str) -> Command | None:
    found = [command for command in COMMANDS if command.name.startswith(beginning)]
    return found[0] if len(found) == 1 else None


def owners(screen: Screen[Any], app: App[Any]) -> tuple[Any, ...]:
    """Those that may have a command's action, in the order they are asked."""
    return (screen, *getattr(screen, "command_parts", ()), app)


async def perform(screen: Screen[Any], given: Given) -> bool:
    """Call the action's method of `screen`, of one of its `command_parts` or of the app. False where none has one that may
    run now."""
    action = given.command.action
    for owner in owners(screen, screen.app):
        method = getattr(owner, f"action_{action}", None)
        if method is None:
            continue
        if (screen.app if owner is screen.app else screen).check_action(action, ()) is not True:
            return False
        done = method(given.argument) if given.argument else method()
        if isawaitable(done):
            await done
        return True
    return False


class CommandProvider(Provider):
    """The `/` commands in Textual's command palette."""

    async def discover(self) -> Hits:
        for command in COMMANDS:
            yield DiscoveryHit(command.words, partial(self._run, command), command.words, f"/{command.name}")

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in COMMANDS:
            text = f"{command.words} (/{command.name})"
            if (score := matcher.match(text)) > 0:
                yield Hit(score, matcher.highlight(text), partial(self._run, command), text)

    async def _run(self, command: Command) -> None:
        if command.needs_argument:
            from app.tui.widgets.prompt import Prompt  # which offers the commands itself

            self.screen.query_one(Prompt).begin(f"/{command.name} ")
        elif not await perform(self.screen, Given(command, "")):
            self.app.notify(f"/{command.name} is not possible now", severity="warning", markup=False)
