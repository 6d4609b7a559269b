from __future__ import annotations

import pytest
from textual.app import App
from textual.screen import Screen

from app.tui.commands import COMMANDS, CommandProblem, Given, matching, parse, perform
from app.tui.keys import KEYS


def test_names_are_unique_and_keys_exist() -> None:
    assert len({command.name for command in COMMANDS}) == len(COMMANDS)
    assert all(not command.key or command.key in KEYS for command in COMMANDS)


@pytest.mark.parametrize(
    ("text", "name", "argument"),
    [("/new", "new", ""), ("  /rename  My plans ", "rename", "My plans"), ("/regen", "regenerate", ""), ("/import a b.json", "import", "a b.json")],
)
def test_commands_with_their_argument(text: str, name: str, argument: str) -> None:
    given = parse(text)
    assert given is not None
    assert (given.command.name, given.argument) == (name, argument)


@pytest.mark.parametrize("text", ["hello", "/etc/hosts is what?", "//new", "/new\nsecond line", "a /new", "", "/", "/2"])
def test_messages_are_no_commands(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [("/frobnicate", "no command /frobnicate"), ("/re", "no command /re"), ("/import", "/import <file>"), ("/quit now", "takes nothing")],
)
def test_what_cannot_be_carried_out_is_told(text: str, problem: str) -> None:
    with pytest.raises(CommandProblem, match=problem):
        parse(text)


def test_what_is_offered_begins_with_what_is_typed() -> None:
    assert [command.name for command in matching("re")][:3] == ["rename", "reload", "regenerate"]
    assert "theme" in " ".join(command.words.lower() for command in matching("theme"))
    assert list(matching("")) == list(COMMANDS)
    assert not matching("zzz")


def test_every_command_has_an_action_in_the_app() -> None:
    from app.tui.app import PacelineApp
    from app.tui.screens.chat import ChatScreen
    from app.tui.screens.chat_dialogs import ChatDialogs
    from app.tui.screens.message_actions import MessageActions

    owners = (ChatScreen, ChatDialogs, MessageActions, PacelineApp)
    missing = [c.name for c in COMMANDS if not any(hasattr(owner, f"action_{c.action}") for owner in owners)]
    assert missing == ["attach"]  # the prompt's own


class Shown(Screen[None]):
    def __init__(self) -> None:
        super().__init__()
        self.did: list[str] = []

    def action_rename(self, title: str = "") -> None:
        self.did.append(f"rename {title}")

    async def action_find(self, words: str = "") -> None:
        self.did.append(f"find {words}")

    def action_edit(self) -> None:
        self.did.append("edit")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "edit"


class Host(App[None]):
    helped = False

    def action_help(self) -> None:
        self.helped = True


async def test_commands_call_the_screen_then_the_app() -> None:
    app, screen = Host(), Shown()
    async with app.run_test():
        await app.push_screen(screen)
        done = [await perform(screen, given) for text in ("/rename A [b] 'c'", "/search", "/help", "/edit", "/undo") if (given := parse(text))]
    assert done == [True, True, True, False, False]
    assert screen.did == ["rename A [b] 'c'", "find "]
    assert app.helped


def test_given_is_a_value() -> None:
    assert parse("/new") == Given(COMMANDS[0], "")
