"""The engine host on tiny real models and a real store: replies, stops, loads, and every way the engine can be lost."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from app.chat import engine_host
from app.chat.events import (
    EngineLost,
    HostEvent,
    HostNotice,
    ModelFailed,
    ModelLoading,
    ModelMissing,
    ModelReady,
    PaceChanged,
    PromptRead,
    ReplyEnded,
    ReplyGrew,
    StoreFailed,
    TokensCounted,
)
from app.chat.pace import PaceSnapshot
from app.options import LoadChoices
from tests.app.chat.hosting import Hosting

LONG = 1900
"""Tokens of a reply that is not over before a test has done something to it; 2,048 fit."""
ESC = 27


@pytest.fixture
def hosting(tmp_path: Path) -> Iterator[Hosting]:
    made = Hosting(tmp_path / "home")
    yield made
    made.close()


@pytest.fixture
def loaded(hosting: Hosting, target: Path, draft: Path) -> Hosting:
    assert isinstance(hosting.load(target, draft, ctx=2048), ModelReady)
    return hosting


def engine_pid(hosting: Hosting) -> int:
    assert hosting.host._process is not None
    assert hosting.host._process.pid is not None
    return hosting.host._process.pid


def engines() -> list[psutil.Process]:
    """Engine processes of this test run that are alive."""
    children = psutil.Process().children()
    return [c for c in children if c.status() != psutil.STATUS_ZOMBIE and "spawn_main" in " ".join(c.cmdline())]


# ---- replies


def test_a_reply_is_told_in_pieces_and_stored_whole(loaded: Hosting) -> None:
    chat = loaded.chat(max_tokens=300, mode="fixed:3")
    ended = loaded.answer(chat, "Hello.")
    grew = loaded.heard.all(ReplyGrew)
    assert ended.state == "length"
    assert ended.text
    assert "".join(event.text for event in grew) == ended.text
    assert all(sum(span.characters for span in event.spans) == len(event.text) for event in grew)
    stored = loaded.store.message(ended.message_id)
    assert (stored.text, stored.state, stored.origins) == (ended.text, "length", ended.spans)
    assert sum(span.characters for span in stored.origins) == len(stored.text)
    assert {span.origin for span in stored.origins} == {"target", "model"}
    assert ended.line == "the reply was cut at 300 tokens; this chat's settings can allow more"
    assert loaded.host.state == "ready"


def test_a_reply_keeps_its_numbers(loaded: Hosting) -> None:
    ended = loaded.answer(loaded.chat(max_tokens=200, mode="fixed:3"), "Hello.")
    report = loaded.store.message(ended.message_id).report
    assert report is not None
    assert report["usage"]["completion_tokens"] == 200
    pace = PaceSnapshot.from_report(report)
    last = loaded.heard.all(PaceChanged)[-1].snapshot
    assert pace is not None
    assert (pace.tokens, last.tokens) == (200, 200)
    assert pace.by_origin == last.by_origin
    assert pace.context_size == 2048
    assert 0 < pace.acceptance_by_position[0] <= 1
    assert pace.memory_bytes
    assert pace.ratio_to_plain is not None


def test_the_store_has_the_reply_while_it_grows(loaded: Hosting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.chat.reply_writer.STORE_SECONDS", 0.0)
    seen: list[tuple[str, str]] = []

    def look() -> None:
        message = loaded.store.path(chat)[-1]
        seen.append((message.state, message.text))

    chat = loaded.chat(max_tokens=100, mode="plain")
    loaded.heard.first(PaceChanged, look)
    ended = loaded.answer(chat, "Hello.")
    [(state, text)] = seen
    assert state == "streaming"
    assert text
    assert ended.text.startswith(text)


def test_control_characters_reach_neither_the_store_nor_the_events(
    loaded: Hosting, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine import SamplingParams

    real = SamplingParams
    monkeypatch.setattr("app.chat.reply_job.SamplingParams", lambda **given: real(**given, logit_bias=((ESC, 1000.0),)))
    ended = loaded.answer(loaded.chat(), "Hello.")
    assert ended.state == "length"
    assert (ended.text, ended.spans, loaded.store.message(ended.message_id).text) == ("", (), "")


@pytest.mark.parametrize("grammar", [r"root ::= [ab\r]*", r'root ::= "\x1b[1m" [ab]*', r'root ::= "<think>" [ab]* "</think>"'])
def test_a_reply_stays_read_whatever_of_it_is_not_kept(loaded: Hosting, monkeypatch: pytest.MonkeyPatch, grammar: str) -> None:
    from engine import SamplingParams

    real = SamplingParams
    monkeypatch.setattr("app.chat.reply_job.SamplingParams", lambda **given: real(**given, grammar=grammar))
    chat = loaded.chat(max_tokens=100, temperature=1.0)
    first = loaded.answer(chat, "Hello.").report["usage"]
    other = loaded.chat()
    loaded.answer(other, "Hello.")  # the state goes to disk, and comes back
    again = loaded.answer(chat, "Go on.").report["usage"]
    assert again["cached_tokens"] >= first["prompt_tokens"] + first["completion_tokens"] - 1


def test_what_cannot_be_asked_is_a_failed_reply_with_its_line(loaded: Hosting) -> None:
    chat = loaded.chat(mode="fixed:63", seed=1 << 63)
    ended = loaded.answer(chat, "Hello.")
    assert ended.state == "failed"
    assert ended.line is not None
    assert "seed is 9223372036854775808" in ended.line
    stored = loaded.store.message(ended.message_id)
    assert stored.report is not None
    assert (stored.state, stored.report["line"]) == ("failed", ended.line)
    assert loaded.answer(loaded.chat(), "Hello.").state == "length"


def test_without_a_model_a_reply_fails_at_once(hosting: Hosting) -> None:
    ended = hosting.answer(hosting.chat(), "Hello.")
    assert (ended.state, ended.line) == ("failed", "no model is loaded")


def test_replies_wait_for_a_load_and_for_each_other(hosting: Hosting, target: Path) -> None:
    hosting.host.load(LoadChoices(target=str(target), draft="none", ctx=512, threads=1))
    one, two = hosting.ask(hosting.chat(), "One."), hosting.ask(hosting.chat(), "Two.")
    assert hosting.ended(two).text
    assert hosting.ended(one).text
    kinds = [event.message_id for event in hosting.heard.all(ReplyEnded)]
    assert kinds == [one.id, two.id]


def test_tokens_are_counted_in_the_middle_of_a_reply(loaded: Hosting) -> None:
    loaded.heard.first(ReplyGrew, lambda: loaded.host.count_tokens("abc", "tag"))
    ended = loaded.answer(loaded.chat(max_tokens=LONG), "Hello.")
    assert loaded.heard.all(TokensCounted) == [TokensCounted("tag", 3)]
    assert loaded.heard.events.index(TokensCounted("tag", 3)) < loaded.heard.events.index(ended)


def test_without_a_model_nothing_is_counted(hosting: Hosting) -> None:
    hosting.host.count_tokens("abc", 7)
    assert hosting.heard.wait(TokensCounted) == TokensCounted(7, None)


# ---- stopping


def test_a_stopped_reply_is_kept_as_far_as_it_came(loaded: Hosting) -> None:
    chat = loaded.chat(max_tokens=LONG, mode="plain")
    loaded.heard.first(ReplyGrew, loaded.host.cancel)
    ended = loaded.answer(chat, "Hello.")
    assert ended.state == "cancelled"
    assert 0 < len(ended.text) < LONG - 100
    assert loaded.store.message(ended.message_id).text == ended.text
    assert loaded.answer(chat, "Go on.").text


def test_a_reply_is_stopped_while_its_prompt_is_read(loaded: Hosting) -> None:
    loaded.heard.first(PromptRead, loaded.host.cancel)
    ended = loaded.answer(loaded.chat(max_tokens=LONG), "x" * 1500)
    assert (ended.state, ended.text) == ("cancelled", "")
    assert loaded.answer(loaded.chat(), "Hello.").text


def test_a_reply_that_waits_is_stopped_too(loaded: Hosting) -> None:
    loaded.heard.first(ReplyGrew, lambda: stopped.append(loaded.ask(chat, "Second.")) or loaded.host.cancel())
    stopped = []
    chat = loaded.chat(max_tokens=LONG)
    assert loaded.answer(chat, "First.").state == "cancelled"
    second = loaded.ended(stopped[0])
    assert (second.state, second.text, second.line) == ("cancelled", "", None)


def test_closing_in_the_middle_keeps_the_reply(loaded: Hosting) -> None:
    pid = engine_pid(loaded)
    reply = loaded.ask(loaded.chat(max_tokens=LONG), "Hello.")
    loaded.heard.wait(ReplyGrew)
    loaded.host.close()
    assert loaded.ended(reply).state == "cancelled"
    assert loaded.store.message(reply.id).text
    assert not psutil.pid_exists(pid)
    loaded.host.close()


# ---- loads


def test_a_load_tells_its_stages_and_prints_nothing(
    hosting: Hosting, target: Path, draft: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ready = hosting.load(target, draft, ctx=512)
    assert isinstance(ready, ModelReady)
    assert (ready.target_name, ready.draft_name, ready.context, ready.device) == ("target", draft.stem, 512, "CPU")
    stages = [event.stage for event in hosting.heard.all(ModelLoading)]
    assert {"loading the model", "loading the draft model", "measuring this machine"} <= set(stages)
    assert capfd.readouterr() == ("", "")


def test_remarks_of_the_choice_are_told_with_the_load(
    hosting: Hosting, target: Path, mismatched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.wiring.writable", lambda _: False)
    ready = hosting.load(target, mismatched)
    assert isinstance(ready, ModelReady)
    assert ready.draft_name is None
    assert any("will not be kept" in line for line in ready.notices)
    assert any("running without the draft model" in line for line in ready.notices)


def test_a_load_is_stopped_and_nothing_of_it_is_left(hosting: Hosting, target: Path) -> None:
    hosting.heard.first(ModelLoading, hosting.host.cancel)
    failed = hosting.load(target)
    assert failed == ModelFailed("loading was stopped", cancelled=True)
    assert hosting.host.state == "empty"
    assert isinstance(hosting.load(target), ModelReady)
    assert len(engines()) == 1


def test_a_load_is_stopped_while_the_engine_reads(hosting: Hosting, target: Path) -> None:
    def stop(event: HostEvent) -> None:
        if isinstance(event, ModelLoading) and event.stage == "loading the model":
            hosting.host.cancel()

    hosting.heard.each(stop)
    assert hosting.load(target) == ModelFailed("loading was stopped", cancelled=True)
    hosting.host.count_tokens("abc", "after")
    assert hosting.heard.wait(TokensCounted).count is None
    assert engines() == []


def test_another_load_takes_the_place_of_one_that_goes_on(hosting: Hosting, target: Path, drafts: dict[str, Path]) -> None:
    hosting.heard.first(ModelLoading, lambda: hosting.host.load(LoadChoices(target=str(drafts["fair"]), draft="none", threads=1)))
    hosting.host.load(LoadChoices(target=str(target), draft="none", threads=1))
    assert hosting.heard.wait(ModelReady).target_name == drafts["fair"].stem
    assert hosting.heard.all(ModelFailed) == [ModelFailed("loading was stopped", cancelled=True)]
    assert len(engines()) == 1


def test_the_old_model_is_gone_before_the_new_one_is_loaded(loaded: Hosting, drafts: dict[str, Path]) -> None:
    old = engine_pid(loaded)
    alive: list[bool] = []

    def watch(event: HostEvent) -> None:
        if isinstance(event, ModelLoading) and event.stage == "loading the model":
            alive.append(psutil.pid_exists(old))

    loaded.heard.each(watch)
    assert isinstance(loaded.load(drafts["fair"]), ModelReady)
    assert alive
    assert not any(alive)


def test_a_wrong_name_leaves_the_loaded_model_alone(loaded: Hosting) -> None:
    failed = loaded.load("no-such-model")
    assert isinstance(failed, ModelFailed)
    assert "there is no model named 'no-such-model'" in failed.text
    assert loaded.host.state == "ready"
    assert loaded.answer(loaded.chat(), "Hello.").text


def test_a_model_that_is_not_here_is_named_with_its_size(hosting: Hosting) -> None:
    missing = hosting.load("qwen2.5-coder-1.5b")
    assert isinstance(missing, ModelMissing)
    assert missing.bytes == 1_117_320_768
    assert len(missing.files) == 1
    assert hosting.host.state == "empty"


def test_what_does_not_fit_is_refused_in_one_line(
    hosting: Hosting, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.app.test_plan import cpu

    monkeypatch.setattr("app.wiring.this_machine", lambda _: cpu(50 << 20))
    failed = hosting.load(target)
    assert isinstance(failed, ModelFailed)
    assert failed.text.startswith("target.gguf needs ")
    assert "\n" not in failed.text


# ---- losing the engine


def test_a_killed_engine_leaves_the_partial_reply_and_can_be_loaded_again(
    loaded: Hosting, target: Path
) -> None:
    chat = loaded.chat(max_tokens=LONG, mode="plain")
    reply = loaded.ask(chat, "Hello.")
    loaded.heard.wait(ReplyGrew)
    os.kill(engine_pid(loaded), signal.SIGKILL)
    ended = loaded.ended(reply)
    lost = loaded.heard.wait(EngineLost)
    assert ended.state == "interrupted"
    assert ended.text
    assert loaded.store.message(reply.id).text == ended.text
    assert lost.message_id == reply.id
    assert "load it again" in lost.text
    assert loaded.host.state == "lost"
    assert loaded.answer(chat, "Still there?").line == "no model is loaded"
    assert isinstance(loaded.load(target), ModelReady)
    assert loaded.answer(chat, "And now?").text


def test_the_death_of_an_idle_engine_is_noticed(loaded: Hosting) -> None:
    os.kill(engine_pid(loaded), signal.SIGKILL)
    assert loaded.heard.wait(EngineLost).message_id is None
    assert loaded.host.state == "lost"


def test_a_file_that_makes_llama_cpp_abort_is_a_failed_load(
    hosting: Hosting, aborting: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.wiring.read_gguf", lambda _: None)  # which would have refused it
    failed = hosting.load(aborting)
    assert isinstance(failed, ModelFailed)
    assert "SIGABRT" in failed.text
    assert isinstance(hosting.load(target), ModelReady)


def test_an_engine_that_hangs_is_ended_after_a_cancel(loaded: Hosting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_host, "UNHEARD_SECONDS", 0.3)
    reply = loaded.ask(loaded.chat(max_tokens=LONG), "Hello.")
    loaded.heard.wait(ReplyGrew)
    os.kill(engine_pid(loaded), signal.SIGSTOP)
    loaded.host.cancel()
    ended = loaded.ended(reply)
    assert (ended.state, ended.line) == ("cancelled", None)
    assert "did not stop when it was asked to" in loaded.heard.wait(EngineLost).text


# ---- the store and the thread


def test_a_store_that_takes_nothing_more_is_said_once_and_the_reply_goes_on(
    loaded: Hosting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.chat.reply_writer.STORE_SECONDS", 0.0)
    chat = loaded.chat(max_tokens=600, mode="plain")
    loaded.heard.first(PromptRead, loaded.fill_store)
    ended = loaded.answer(chat, "Hello.")
    assert ended.state == "length"
    assert len(loaded.heard.all(StoreFailed)) == 1
    assert not ended.stored
    loaded.store = loaded.store.to_memory()
    assert loaded.answer(chat, "Again.").stored


def test_the_store_is_asked_for_at_every_write(loaded: Hosting) -> None:
    """The interface swaps it in the middle of a reply."""
    chat = loaded.chat(max_tokens=400)

    def swap() -> None:
        loaded.store = loaded.store.to_memory()

    loaded.heard.first(ReplyGrew, swap)
    ended = loaded.answer(chat, "Hello.")
    assert not loaded.store.persistent
    assert loaded.store.message(ended.message_id).text == ended.text


def test_a_bug_does_not_end_the_thread(loaded: Hosting, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("app.chat.kv_states.KvStates.forget", broken)
    monkeypatch.setenv("PACELINE_HOME", str(loaded.paths.logs.parent))
    loaded.host.forget_chats([1])
    assert "ZeroDivisionError: a bug" in loaded.heard.wait(HostNotice).text
    assert loaded.answer(loaded.chat(), "Hello.").text


def test_events_come_from_one_thread_but_for_progress(loaded: Hosting) -> None:
    names: set[str] = set()
    loaded.heard.each(lambda _: names.add(threading.current_thread().name))
    loaded.answer(loaded.chat(), "Hello.")
    assert names == {"engine host"}
