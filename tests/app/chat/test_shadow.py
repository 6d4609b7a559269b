"""Replies that are read again in idle time, by a real engine's process."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.chat import shadow
from app.chat.events import EngineLost, HostNotice, ModelReady, ReplyEnded, TitleMade, TokensCounted
from app.chat.job_queue import ShadowJob
from app.chat.jobs import TitleJob
from app.verify.shadow import log_file
from engine import ChatMessage
from tests.app.chat.hosting import PATIENCE, Hosting


@pytest.fixture
def hosting(tmp_path: Path, target: Path, draft: Path) -> Iterator[Hosting]:
    made = Hosting(tmp_path / "home")
    made.host.shadow_rate = 1.0
    assert isinstance(made.load(target, draft, ctx=2048), ModelReady)
    yield made
    made.close()


def settled(hosting: Hosting) -> None:
    """Everything that was asked for before is done: a title for nobody is the last of all work."""
    hosting.host.title(TitleJob(-1, ()))
    until(lambda: not hosting.host._jobs._waiting and hosting.host._jobs._current is None)


def until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < end
        time.sleep(0.01)


def lines(hosting: Hosting) -> list[dict[str, Any]]:
    path = log_file(hosting.paths)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_replies_are_read_again_and_nothing_is_said_of_right_ones(hosting: Hosting, draft: Path) -> None:
    hosting.answer(hosting.chat(mode="fixed:3"), "Hello.")
    settled(hosting)
    hosting.answer(hosting.chat(mode="fixed:3", temperature=1.0), "Hello.")
    settled(hosting)
    greedy, drawn = lines(hosting)
    assert (greedy["target"], greedy["draft"], greedy["tokens"]) == ("target.gguf", draft.name, 24)
    assert greedy["verdict"] in ("exact", "near ties")
    assert drawn["e_value"] is not None
    assert hosting.heard.all(HostNotice) == []
    hosting.host.shadow_rate = 0.0
    hosting.answer(hosting.chat(), "Hello.")
    settled(hosting)
    assert len(lines(hosting)) == 2


def test_a_drift_is_told_in_one_line(hosting: Hosting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply that was drawn is said to be the likeliest text."""

    def greedy(message_id: int, request: Any, finished: Any) -> ShadowJob:
        return ShadowJob(message_id, replace(request, sampling=replace(request.sampling, temperature=0.0)), finished)

    monkeypatch.setattr("app.chat.reply_job.ShadowJob", greedy)
    reply = hosting.ask(hosting.chat(temperature=2.0), "Hello.")
    notice = hosting.heard.wait(HostNotice)
    assert notice.message_id == reply.id
    assert notice.text.startswith("shadow: 24 tokens read again under the target: DRIFT")
    assert "\n" not in notice.text


def test_a_title_comes_after_it(hosting: Hosting, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    real = shadow.keep

    def keep(*args: Any) -> str | None:
        done.append(args[-1].verdict)
        return real(*args)

    monkeypatch.setattr(shadow, "keep", keep)
    chat = hosting.chat()
    hosting.heard.first(ReplyEnded, lambda: hosting.host.title(TitleJob(chat, (ChatMessage("user", "Hello."),))))
    hosting.ask(chat, "Hello.")
    hosting.heard.wait(TitleMade)
    assert len(done) == 1
    assert done[0] != "not checked"


def begun(hosting: Hosting) -> Callable[[], None]:
    """A second reading that has begun and gets no further before what is returned is called."""
    assert hosting.host._process is not None
    pid = hosting.host._process.pid
    assert pid is not None
    hosting.heard.first(ReplyEnded, lambda: os.kill(pid, signal.SIGSTOP))
    hosting.ask(hosting.chat(), "Hello.")
    until(lambda: (task := hosting.host._jobs._current) is not None and isinstance(task.work, ShadowJob))
    return lambda: os.kill(pid, signal.SIGCONT)


def test_what_the_user_asks_for_stops_it(hosting: Hosting) -> None:
    go_on = begun(hosting)
    reply = hosting.ask(hosting.chat(), "Something else.")
    hosting.host.shadow_rate = 0.0
    go_on()
    assert hosting.ended(reply).state == "length"
    settled(hosting)
    assert lines(hosting) == []
    assert hosting.heard.all(EngineLost) == []


@pytest.mark.parametrize("how", ["cancel", "open_chat", "close"])
def test_it_is_given_up_when_it_is_in_the_way(hosting: Hosting, how: str) -> None:
    go_on = begun(hosting)
    if how == "cancel":
        hosting.host.cancel()
    elif how == "open_chat":
        hosting.host.open_chat(None)
    else:
        hosting.host._jobs.close()
    go_on()
    hosting.host.close()
    assert not hosting.host._thread.is_alive()
    assert lines(hosting) == []


def test_tokens_are_counted_meanwhile(hosting: Hosting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.process.POLL_SECONDS", 0.0)
    go_on = begun(hosting)
    hosting.host.count_tokens("abc", "meanwhile")
    go_on()
    assert hosting.heard.wait(TokensCounted).count == 3
    settled(hosting)
    assert len(lines(hosting)) == 1
