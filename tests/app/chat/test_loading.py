"""Loads that have to fetch files first: told in stages, stopped at any time, and nothing on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from app.chat.events import HostEvent, ModelFailed, ModelLoading, ModelMissing, ModelReady
from app.options import LoadChoices
from tests.app.chat.hosting import Hosting
from tests.models.hub_server import HubServer

FETCHING = LoadChoices(ctx=512, threads=1, yes=True)
ASKING = LoadChoices(ctx=512, threads=1)


@pytest.fixture
def hosting(hub: HubServer, home: Path) -> Iterator[Hosting]:
    made = Hosting(home)
    yield made
    made.close()


def load(hosting: Hosting, choices: LoadChoices) -> HostEvent:
    since = len(hosting.heard.events)
    hosting.host.load(choices)
    return hosting.heard.wait((ModelReady, ModelFailed, ModelMissing), since=since)


def test_nothing_is_fetched_without_leave(hosting: Hosting, hub: HubServer, target: Path, draft: Path) -> None:
    missing = load(hosting, ASKING)
    assert isinstance(missing, ModelMissing)
    assert len(missing.files) == 2
    assert missing.bytes == target.stat().st_size + draft.stat().st_size
    assert hub.requests == []


def test_with_leave_files_come_and_the_load_goes_on(hosting: Hosting, capfd: pytest.CaptureFixture[str]) -> None:
    ready = load(hosting, FETCHING)
    assert isinstance(ready, ModelReady)
    assert (ready.target_name, ready.draft_name) == ("target", "draft")
    stages = {event.stage for event in hosting.heard.all(ModelLoading)}
    assert {"downloading target.gguf", "downloading draft.gguf", "loading the model"} <= stages
    assert all(0 <= event.fraction <= 1 for event in hosting.heard.all(ModelLoading))
    assert capfd.readouterr() == ("", "")
    assert isinstance(load(hosting, ASKING), ModelReady), "now they are here"


def test_a_draft_that_is_not_here_is_done_without(hosting: Hosting, home: Path) -> None:
    load(hosting, FETCHING)
    [draft] = (home / "models").rglob("draft.gguf")
    draft.unlink()
    ready = load(hosting, ASKING)
    assert isinstance(ready, ModelReady)
    assert ready.draft_name is None
    assert any("running without a draft model: not on this disk: " in line for line in ready.notices)


def test_a_file_that_was_copied_into_place_is_checked_not_fetched(
    hosting: Hosting, hub: HubServer, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    load(hosting, FETCHING)
    fetched = len(hub.bodies())
    for record in (home / "models").rglob("*"):
        if record.is_file() and record.suffix != ".gguf":
            record.unlink()
    assert isinstance(load(hosting, ASKING), ModelReady)
    assert any(event.stage.startswith("checking ") for event in hosting.heard.all(ModelLoading))
    assert len(hub.bodies()) == fetched
    assert capfd.readouterr() == ("", "")


def test_a_download_is_stopped(hosting: Hosting) -> None:
    def stop(event: HostEvent) -> None:
        if isinstance(event, ModelLoading) and event.stage.startswith("downloading"):
            hosting.host.cancel()

    hosting.heard.each(stop)
    failed = load(hosting, FETCHING)
    assert failed == ModelFailed("loading was stopped", cancelled=True)


def test_a_hub_that_does_not_answer_is_one_line(hosting: Hosting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    failed = load(hosting, FETCHING)
    assert isinstance(failed, ModelFailed)
    assert "\n" not in failed.text


def test_a_load_whose_engine_hangs_does_not_hold_up_the_next(hosting: Hosting, target: Path) -> None:
    hung: list[psutil.Process] = []

    def hang(event: HostEvent) -> None:
        children = [c for c in psutil.Process().children() if "spawn_main" in " ".join(c.cmdline())]
        if isinstance(event, ModelLoading) and children and not hung:
            hung.extend(children)
            children[-1].suspend()

    named = LoadChoices(target=str(target), draft="none", ctx=512, threads=1)
    hosting.heard.each(hang)
    hosting.host.load(named)
    hosting.heard.wait(ModelLoading, lambda _: bool(hung))
    assert isinstance(load(hosting, named), ModelFailed)
    assert hosting.heard.wait(ModelReady).target_name == "target"
    assert not hung[0].is_running()
