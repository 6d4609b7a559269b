"""The first `ask` on a machine without models, against a hub on loopback that serves a tiny starter pair."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from tests.app.conftest import HUB_REPO
from tests.models.hub_server import HubServer


@pytest.fixture
def ask(hub: HubServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: SIM115 - pytest's own stdin refuses to be read

    def run(*args: str) -> tuple[int, str, str]:
        code = main(["ask", "-n", "8", "--ctx", "512", "--threads", "1", *args, "hello"])
        return code, *capsys.readouterr()

    return run


def answer_at_the_terminal(monkeypatch: pytest.MonkeyPatch, answer: bool) -> list[str]:
    """A person is there and says yes or no; returns the questions put to them."""
    questions: list[str] = []

    def ask_yes(question: str) -> bool:
        questions.append(question)
        return answer

    monkeypatch.setattr("app.wiring.person_present", lambda: True)
    monkeypatch.setattr("app.wiring.ask_yes", ask_yes)
    return questions


def test_yes_fetches_the_starter_pair_and_answers(ask: Any, hub: HubServer) -> None:
    code, out, err = ask("--yes")
    assert (code, bool(out.strip())) == (0, True)
    assert "fetching target.gguf" in err
    assert "fetching draft.gguf" in err
    fetched = len(hub.bodies())
    assert ask()[0] == 0
    assert len(hub.bodies()) == fetched


def test_a_person_is_asked_once_with_size_and_place(ask: Any, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = answer_at_the_terminal(monkeypatch, True)
    assert ask()[0] == 0
    [question] = questions
    assert "1.0 MB" in question
    assert str(home / "models") in question
    assert ask()[0] == 0
    assert len(questions) == 1


def test_no_means_no(ask: Any, hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_at_the_terminal(monkeypatch, False)
    code, out, err = ask()
    assert (code, out) == (1, "")
    assert "--target names a file of your own" in err
    assert hub.requests == []


def test_plain_decoding_needs_no_draft_on_disk(ask: Any, home: Path) -> None:
    assert ask("--yes", "--mode", "plain")[0] == 0
    assert [path.name for path in home.rglob("*.gguf")] == ["target.gguf"]


def test_a_draft_nobody_asked_for_is_done_without(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask("--yes", "--draft", "none")[0] == 0
    code, out, err = ask()
    assert (code, bool(out.strip())) == (0, True)
    assert "running without a draft model" in err
    assert ask("--draft", "tiny-draft")[0] == 1, "but one that was asked for is not"
    answer_at_the_terminal(monkeypatch, False)
    assert ask()[0] == 0


def test_files_copied_into_place_are_checked_and_used_offline(
    ask: Any, hub: HubServer, home: Path, target: Path, draft: Path
) -> None:
    folder = home / "models" / HUB_REPO
    folder.mkdir(parents=True)
    shutil.copy(target, folder / "target.gguf")
    shutil.copy(draft, folder / "draft.gguf")
    code, out, err = ask("--offline")
    assert (code, bool(out.strip())) == (0, True)
    assert "fetching" not in err
    assert hub.requests == []


def test_a_copied_file_that_is_another_one_is_not_used(ask: Any, home: Path, target: Path, draft: Path) -> None:
    folder = home / "models" / HUB_REPO
    folder.mkdir(parents=True)
    shutil.copy(draft, folder / "target.gguf")
    code, out, err = ask("--offline")
    assert (code, out) == (1, "")
    assert "--offline rules out fetching" in err
