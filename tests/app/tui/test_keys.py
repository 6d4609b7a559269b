from __future__ import annotations

from itertools import combinations

import pytest
from textual.app import App, ComposeResult

from app.tui.keys import KEYS, apply_keys, bind, checked, keys_of, shown_key, written
from app.tui.widgets.prompt_input import PromptInput


def test_our_own_keys_do_not_conflict() -> None:
    for together in (("everywhere", "chat", "prompt"), ("everywhere", "chat", "message"), ("everywhere", "list")):
        heard = [id for id, entry in KEYS.items() if entry.where in together]
        for one, other in combinations(heard, 2):
            assert not set(keys_of(one, {})) & set(keys_of(other, {})), (one, other)


@pytest.mark.parametrize(
    ("own", "problem"),
    [
        ({"nope": "f7"}, "keys.nope: nothing has that name"),
        ({"pace": "ctrl+foo"}, "keys.pace: 'ctrl+foo' is not a key"),
        ({"pace": ""}, "keys.pace: '' is not a key"),
        ({"pace": "ctrl+ctrl+g"}, "is not a key"),
        ({"pace": "p"}, "keys.pace: 'p' is a character to type"),
        ({"pace": "ctrl+a"}, "keys.pace: ctrl+a edits the prompt (cursor line start)"),
        ({"pace": "f1"}, "keys.pace: f1 is taken by help (help)"),
        ({"newline": "enter"}, "keys.newline: enter is taken by send (send)"),
        ({"pace": "ctrl+m"}, "keys.pace: enter is taken by send (send)"),
        ({"pace": "f1", "help": "f99x"}, "is taken by help"),
        ({"pace": "ctrl+up", "earlier_prompt": "f1"}, "keys.pace: ctrl+up is taken by earlier_prompt"),
        ({"previous_branch": "h"}, "keys.previous_branch: 'h' is a character to type"),
        ({"copy": "e"}, "keys.copy: e is taken by edit"),
    ],
)
def test_what_cannot_work_is_told_and_left_out(own: dict[str, str], problem: str) -> None:
    kept, problems = checked(own)
    assert any(problem in line for line in problems)
    assert "\n" not in problems[0]
    assert not kept


def test_keys_can_change_places() -> None:
    own = {"send": "ctrl+s", "newline": "enter", "help": "f2", "rename": "f1"}
    assert checked(own) == (own, [])


def test_a_message_key_may_be_a_letter() -> None:
    assert checked({"copy": "z"}) == ({"copy": "z"}, [])


@pytest.mark.parametrize(("key", "words"), [("ctrl+q", "Ctrl+Q"), ("pageup", "PgUp"), ("f1", "F1"), ("shift+enter", "Shift+Enter"),
                                            ("question_mark", "?"), ("escape", "Esc"), ("tab", "Tab"), ("slash", "/"), ("space", "Space"), ("n", "n"), ("enter", "Enter")])
def test_keys_are_written_for_people(key: str, words: str) -> None:
    assert written(key) == words


class Remapped(App[None]):
    BINDINGS = [bind("pace", "pace")]  # noqa: RUF012

    def __init__(self, own: dict[str, str]) -> None:
        super().__init__()
        self.own = own
        self.problems: list[str] = []
        self.paces = 0

    def compose(self) -> ComposeResult:
        yield PromptInput()

    def on_mount(self) -> None:
        self.problems = apply_keys(self, self.own)

    def action_pace(self) -> None:
        self.paces += 1


async def test_the_users_keys_work_instead_of_ours() -> None:
    app = Remapped({"pace": "ctrl+b", "send": "f1", "newline": "enter"})
    async with app.run_test() as pilot:
        await pilot.press("ctrl+g", "ctrl+b", "a", "enter", "b")
        await pilot.pause()
        assert app.problems == ["keys.send: f1 is taken by help (help)", "keys.newline: enter is taken by send (send)"]
        assert app.paces == 1
        assert shown_key(app, "pace") == "Ctrl+B"
        assert app.query_one(PromptInput).text == "ab"


async def test_newline_and_send_change_places() -> None:
    app = Remapped({"send": "ctrl+s", "newline": "enter"})
    async with app.run_test() as pilot:
        await pilot.press("a", "enter", "b")
        await pilot.pause()
        assert app.query_one(PromptInput).text == "a\nb"
