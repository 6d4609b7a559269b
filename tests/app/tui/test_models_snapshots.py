"""How the models screen looks: a simulated laptop, at two sizes and in two themes; and a download that goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot

from app.options import LoadChoices
from app.paths import Paths
from app.tui.screens.models import ModelsScreen
from app.tui.themes import apply_theme
from app.tui.widgets.download_meter import DownloadMeter
from models import Device, DownloadProgress, Hardware

GB = 10**9
LAPTOP = Hardware(16 * GB, 11 * GB, 8, 16, 80 * GB, repacked_types=frozenset({"Q4_0", "Q4_K"}))
DESKTOP = Hardware(32 * GB, 26 * GB, 8, 16, 500 * GB, (Device("CUDA0", 12 * GB, 11 * GB),), frozenset({"Q4_0", "Q4_K"}))
SIZES = ((80, 24), (120, 40))
THEMES = ("dark", "light")


class Shell(App[None]):
    def __init__(self, theme: str) -> None:
        super().__init__()
        self._wanted = theme

    def on_mount(self) -> None:
        apply_theme(self, self._wanted, {})


@pytest.fixture(autouse=True)
def _no_other_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_OFFLINE", "HF_HUB_CACHE", "OLLAMA_MODELS", "LLAMA_CACHE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_CACHE_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "user"))


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths.find({"PACELINE_HOME": str(tmp_path)})


def on(machine: Hardware, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.wiring.this_machine", lambda _: machine)


def at(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


async def opened(pilot: Pilot[None], paths: Paths, wanted: str = "") -> ModelsScreen:
    screen = ModelsScreen(paths, LoadChoices(), wanted=wanted, first=True)
    await pilot.app.push_screen(screen)
    for _ in range(1000):
        await pilot.pause(0.01)
        if screen._complete:
            break
    await pilot.pause()
    return screen


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES, ids=at)
def test_first_start(snap_compare: Any, paths: Paths, size: tuple[int, int], theme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on(LAPTOP, monkeypatch)

    async def look(pilot: Pilot[None]) -> None:
        await opened(pilot, paths)

    assert snap_compare(Shell(theme), terminal_size=size, run_before=look)


@pytest.mark.parametrize("theme", ["dark", "no-colour"])
def test_split_between_gpu_and_cpu(snap_compare: Any, paths: Paths, theme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on(DESKTOP, monkeypatch)

    async def look(pilot: Pilot[None]) -> None:
        await opened(pilot, paths, "qwen3-32b")

    assert snap_compare(Shell(theme), terminal_size=(120, 40), run_before=look)


def test_a_download(snap_compare: Any, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    on(LAPTOP, monkeypatch)
    monkeypatch.setattr("app.tui.widgets.download_panel.monotonic", lambda: 110.0)

    async def look(pilot: Pilot[None]) -> None:
        screen = await opened(pilot, paths, "starter")
        meter = DownloadMeter()
        for now, done in ((100.0, 100_000_000), (110.0, 300_000_000)):
            meter.add(DownloadProgress("target.gguf", "downloading", done, 1_117_000_000, 0, 2, "hub"), now)
        meter.add(DownloadProgress("draft.gguf", "checking", 400_000_000, 531_000_000, 1, 2, "hub"), 109.0)
        screen.set_class(True, "-fetching")
        screen._panel.show_meter(meter)
        await pilot.pause()

    assert snap_compare(Shell("dark"), terminal_size=(80, 24), run_before=look)
