"""The first start and the models screen: the real app, a hub on loopback, tiny models; from an empty disk to a reply."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from app.chat import model_choice
from app.options import LoadChoices
from app.paths import Paths
from app.settings import LoadSettings, Settings, load_settings
from app.store import ChatStore
from app.tui.screens.models import ModelsScreen
from app.tui.screens.pick_one import PickOne
from app.tui.widgets.download_panel import DownloadPanel
from tests.app.tui.conftest import GREEDY, SIZE, Running
from tests.models.hub_server import HubServer, hub_server

REPO = "acme/tiny-GGUF"
Begin = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture(autouse=True)
def _no_other_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_OFFLINE", "HF_TOKEN", "HF_HUB_CACHE", "OLLAMA_MODELS", "LLAMA_CACHE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_CACHE_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "user"))


@pytest.fixture
def hub(paths: Paths, target: Path, draft: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A hub with a tiny pair, which the user's own catalogue makes the starter."""
    entries = ""
    with hub_server() as server:
        for role, path in (("target", target), ("draft", draft)):
            body = path.read_bytes()
            server.files[f"{REPO}/{role}.gguf"] = body
            entries += f'[[files]]\nname = "tiny-{role}"\nrepo = "{REPO}"\nfile = "{role}.gguf"\nbytes = {len(body)}\n'
            entries += f'licence = "MIT"\nsha256 = "{hashlib.sha256(body).hexdigest()}"\n'
        entries += '[[pairs]]\nname = "starter"\ntitle = "Tiny"\ntarget = "tiny-target"\ndraft = "tiny-draft"\n'
        paths.config.mkdir(parents=True)
        (paths.config / "catalogue.toml").write_text(entries)
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


@pytest.fixture
def begin(paths: Paths, store: ChatStore) -> Begin:
    """`async with begin() as running`: the app as it starts when nobody said which models to take."""

    @asynccontextmanager
    async def run(**choices: object) -> AsyncIterator[Running]:
        from app.tui.app import PacelineApp, Start

        settings = Settings(chat=GREEDY, auto_title=False)
        app = PacelineApp(Start(paths, settings, store, replace(LoadChoices(threads=1), **choices)))  # type: ignore[arg-type]
        try:
            async with app.run_test(size=SIZE) as pilot:
                yield Running(app, pilot)
        finally:
            app.close()

    return run


async def models_screen(running: Running) -> ModelsScreen:
    """The open screen, once it knows all pairs."""
    await running.until(lambda: isinstance(running.app.screen, ModelsScreen), "the models screen did not open")
    screen = running.app.screen
    assert isinstance(screen, ModelsScreen)
    await running.until(lambda: screen._complete and screen._list.here and details(screen))
    return screen


def said(screen: ModelsScreen) -> str:
    return str(screen._line.render())


def details(screen: ModelsScreen) -> str:
    return str(screen._details.render())


async def go_to(running: Running, screen: ModelsScreen, name: str) -> None:
    screen._list.highlighted = screen._list.get_option_index(name)
    await running.pilot.pause()


def take_in(paths: Paths, **files: Path) -> None:
    """Copy files to where the starter pair's belong, as verified ones."""
    from models import Inventory

    inventory = Inventory(paths.models)
    for role, path in files.items():
        place = paths.models / REPO / f"{role}.gguf"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
        inventory.record(place, hashlib.sha256(path.read_bytes()).hexdigest(), origin="hub", repo=REPO, revision=None)


async def test_from_an_empty_disk_to_the_first_reply(begin: Begin, hub: HubServer, paths: Paths) -> None:
    async with begin() as running:
        screen = await models_screen(running)
        assert "No model is here yet" in said(screen)
        await go_to(running, screen, "starter")
        assert "tiny-target answers, tiny-draft drafts" in details(screen)
        assert "1.0 MB to download" in details(screen) or "1 MB to download" in details(screen)
        await running.pilot.press("enter")
        await running.ready()
        assert running.app.screen is running.screen
        await running.ask("hello")
        assert running.path[-1].text
    assert load_settings(paths).load == LoadSettings(target="starter")


@pytest.fixture
def slow(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny files that take as many pieces, and as long, as real ones."""
    monkeypatch.setattr("models.hub._CHUNK_BYTES", 1 << 15)
    hub.bytes_per_second = 250_000


@pytest.mark.usefixtures("slow")
async def test_a_download_stops_by_escape_and_goes_on_where_it_was(begin: Begin, hub: HubServer, paths: Paths) -> None:
    async with begin() as running:
        screen = await models_screen(running)
        await go_to(running, screen, "starter")
        await running.pilot.press("enter")
        panel = screen.query_one(DownloadPanel)
        await running.until(lambda: any(part.stat().st_size for part in paths.models.rglob("*.part")))
        await running.until(lambda: "target.gguf" in str(panel.render()))
        await running.pilot.press("escape")
        await running.until(lambda: "what has arrived is kept" in said(screen))
        assert running.app.screen is screen
        await running.pilot.press("escape")
        assert running.app.screen is running.screen
    kept = sum(part.stat().st_size for part in paths.models.rglob("*.part"))
    assert kept > 0
    hub.bytes_per_second = None
    async with begin() as running:
        screen = await models_screen(running)
        assert "left unfinished" in said(screen)
        assert screen._list.here is not None
        assert screen._list.here.name == "starter"
        assert " here · MIT" in details(screen)
        await running.pilot.press("enter")
        await running.ready()
    assert any(request.range not in (None, "bytes=0-") for request in hub.bodies())


@pytest.mark.usefixtures("slow")
async def test_leaving_the_app_stops_the_download(begin: Begin, paths: Paths) -> None:
    async with begin() as running:
        screen = await models_screen(running)
        await go_to(running, screen, "starter")
        await running.pilot.press("enter")
        await running.until(lambda: any(part.stat().st_size for part in paths.models.rglob("*.part")))
        await running.pilot.press("ctrl+q")
    assert next(paths.models.rglob("*.gguf"), None) is None


async def test_offline_says_so_and_offers_what_is_here(
    begin: Begin, hub: HubServer, paths: Paths, target: Path, draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    take_in(paths, target=target, draft=draft)
    async with begin(target="qwen2.5-coder-7b") as running:
        screen = await models_screen(running)
        assert said(screen).startswith("Offline (HF_HUB_OFFLINE is set)")
        assert screen._list.names[0] == "starter", "recommended, as it is here"
        await running.pilot.press("enter")
        assert "cannot be fetched" in said(screen)
        await go_to(running, screen, "starter")
        await running.pilot.press("enter")
        await running.ready()
        assert hub.requests == []


async def test_without_a_network_one_line_says_so(begin: Begin, hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    async with begin() as running:
        screen = await models_screen(running)
        await go_to(running, screen, "starter")
        await running.pilot.press("enter")
        await running.until(lambda: "hub does not answer" in said(screen))
        assert screen._line.has_class("-problem")
        assert screen._fetching is None


async def test_too_little_disk_is_told_before_anything_is_asked_for(
    begin: Begin, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with begin() as running:
        screen = await models_screen(running)
        await go_to(running, screen, "starter")
        monkeypatch.setattr("models.download_job.shutil.disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 1000))
        await running.pilot.press("enter")
        await running.until(lambda: "are to be fetched and" in said(screen))
        assert hub.requests == []
        monkeypatch.undo()


@pytest.mark.parametrize(("status", "line"), [(401, "licence to be accepted"), (403, "HF_TOKEN")])
async def test_a_refusal_says_what_to_do(begin: Begin, hub: HubServer, status: int, line: str) -> None:
    from tests.models.hub_server import Fault

    headers = {"X-Error-Code": "GatedRepo"} if status == 401 else {}
    hub.head_faults.extend([Fault(status=status, headers=headers)] * 2)
    async with begin() as running:
        screen = await models_screen(running)
        await go_to(running, screen, "starter")
        await running.pilot.press("enter")
        await running.until(lambda: line in said(screen))
        assert "HF_TOKEN" in said(screen)
        await running.until(lambda: screen._complete)
        await running.pilot.press("enter")
        await running.ready()


async def test_wrong_bytes_are_never_loaded(begin: Begin, hub: HubServer, paths: Paths) -> None:
    from tests.models.hub_server import Fault

    hub.faults.extend([Fault(flip_at=1000), Fault(flip_at=1000)])
    async with begin() as running:
        screen = await models_screen(running)
        await go_to(running, screen, "starter")
        await running.pilot.press("enter")
        await running.until(lambda: "SHA-256" in said(screen))
    assert next(paths.models.rglob("target.gguf"), None) is None


async def test_what_cannot_run_is_folded_away_with_its_reason(begin: Begin, hub: HubServer) -> None:
    async with begin() as running:
        screen = await models_screen(running)
        assert "mixtral-8x7b-tinyllama" not in screen._list.names
        fold = screen._list.get_option_index("fold")
        screen._list.highlighted = fold
        await running.pilot.press("enter")
        await go_to(running, screen, "mixtral-8x7b-tinyllama")
        assert "vocabularies do not match" in details(screen)
        await running.pilot.press("enter")
        assert "vocabularies do not match" in said(screen)
        assert running.app.screen is screen


async def test_another_draft_and_context_are_loaded_and_kept(
    begin: Begin, hub: HubServer, paths: Paths, target: Path, draft: Path
) -> None:
    take_in(paths, target=target, draft=draft)
    async with begin() as running:
        await running.ready()
        assert running.app.host.state == "ready"
        running.app.action_models("starter")
        screen = await models_screen(running)
        assert screen._current == "starter"
        await running.pilot.press("w")
        await running.until(lambda: isinstance(running.app.screen, PickOne))
        await running.pilot.press("down", "enter")
        await running.until(lambda: "no draft model" in details(screen))
        await running.pilot.press("x")
        await running.until(lambda: isinstance(running.app.screen, PickOne))
        await running.pilot.press("home", "down", "enter")
        await running.until(lambda: screen._complete and "2,048 tokens of context" in details(screen))
        assert "no draft model" in details(screen)
        await running.pilot.press("enter")
        await running.until(lambda: running.app.host.state == "ready" and "+" not in running.screen.status.model)
    assert load_settings(paths).load == LoadSettings(target="starter", draft="none", ctx=2048)


async def test_models_of_other_programs_need_no_download(
    begin: Begin, hub: HubServer, paths: Paths, target: Path, draft: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "user" / ".lmstudio" / "models" / "them" / "tiny"
    folder.mkdir(parents=True)
    shutil.copy(target, folder / "their-model.gguf")
    async with begin() as running:
        screen = await models_screen(running)
        await go_to(running, screen, "their-model")
        assert "LM Studio" in str(screen._list.get_option("their-model").prompt)
        await running.pilot.press("enter")
        await running.ready()
        assert hub.requests == []
    assert not list(paths.models.rglob("*.gguf"))
    assert load_settings(paths).load.target == "their-model"


async def test_a_name_is_highlighted_and_one_that_means_nothing_is_told(begin: Begin, hub: HubServer) -> None:
    async with begin() as running:
        first = await models_screen(running)
        first.dismiss(None)
        await running.until(lambda: running.app.screen is running.screen)
        running.app.action_models("qwen3-8b")
        screen = await models_screen(running)
        assert screen._list.here is not None
        assert screen._list.here.name == "qwen3-8b"
        screen.dismiss(None)
        await running.until(lambda: running.app.screen is running.screen)
        running.app.action_models("qwen9")
        screen = await models_screen(running)
        assert "there is no model named 'qwen9'" in said(screen)


async def test_a_broken_catalogue_leaves_the_screen_usable(begin: Begin, hub: HubServer, paths: Paths) -> None:
    (paths.config / "catalogue.toml").write_text("[[pairs]]\nname = 3\n")
    async with begin() as running:
        await running.until(lambda: isinstance(running.app.screen, ModelsScreen))
        screen = running.app.screen
        assert isinstance(screen, ModelsScreen)
        await running.until(lambda: "catalogue.toml" in said(screen))
        await running.pilot.press("escape")
        assert running.app.screen is running.screen
        await running.until(lambda: "F3 chooses one" in running.screen.activity.text)


def test_nothing_is_here_until_there_is_a_file_or_a_choice(paths: Paths, target: Path) -> None:
    nothing = model_choice.nothing_here
    assert nothing(paths, LoadChoices())
    assert not nothing(paths, LoadChoices(target="x"))
    assert not nothing(paths, LoadChoices(yes=True))
    paths.models.mkdir(parents=True)
    shutil.copy(target, paths.models / "mine.gguf")
    assert not nothing(paths, LoadChoices())


