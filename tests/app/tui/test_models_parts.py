"""The parts of the models screen that need no app: bars, rates, and what is said of a pair."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.chat.memory_needs import Needs
from app.chat.model_choice import Offer
from app.fit import Fit
from app.tui.widgets.download_meter import DownloadMeter
from app.tui.widgets.download_panel import lines, time_left
from app.tui.widgets.memory_bar import memory_bar, memory_legend
from app.tui.widgets.offer_text import details, row
from models import DownloadProgress, Hardware, ModelFile

GB = 10**9
NEEDS = Needs("memory", 4 * GB, 2 * GB, 1 * GB, 1 * GB, 16 * GB)
MACHINE = Hardware(16 * GB, 11 * GB, 8, 16, 80 * GB)


def test_the_parts_of_a_bar_differ_without_colour() -> None:
    assert memory_bar(NEEDS, 16).plain == "████▓▓▒░········"
    assert [part.plain for part in memory_legend(NEEDS)] == ["█ target 4.0 GB", "▓ draft 2.0 GB", "▒ context 1.0 GB", "░ work 1.0 GB"]


def test_what_is_there_is_seen_and_what_does_not_fit_fills_the_bar() -> None:
    assert "▓" in memory_bar(replace(NEEDS, draft=1), 16).plain
    assert "·" not in memory_bar(replace(NEEDS, free=1), 16).plain


def progress(done: int, phase: str = "downloading", index: int = 0) -> DownloadProgress:
    return DownloadProgress(f"file{index}.gguf", phase, done, 1000, index, 2, "hub")  # type: ignore[arg-type]


def test_a_rate_is_of_the_last_seconds_and_of_one_phase() -> None:
    meter = DownloadMeter()
    meter.add(progress(900, "checking"), 0.0)
    meter.add(progress(100), 1.0)
    assert meter.rows(1.0)[0].rate is None
    meter.add(progress(300), 3.0)
    [file] = meter.rows(3.0)
    assert (file.rate, file.seconds_left) == (100.0, 7.0)
    assert meter.rows(101.0)[0].rate == pytest.approx(2.0), "a stalled download gets slower"


def test_files_are_shown_in_their_order_and_remarks_below() -> None:
    meter = DownloadMeter()
    assert [line.plain for line in lines(meter, 0.0, 60)] == ["asking for the files…"]
    meter.add(progress(1000, index=1), 0.0)
    meter.add(progress(250), 0.0)
    meter.say("trying \x1b[31magain")
    shown = [line.plain for line in lines(meter, 2.0, 60)]
    assert shown[0].startswith("file0.gguf")
    assert shown[1].endswith(" 25%")
    assert shown[2].endswith("✓ here")
    assert shown[-1] == "trying again"


@pytest.mark.parametrize(("seconds", "words"), [(40, "40 s"), (719, "12 min"), (7500, "2 h 5 min")])
def test_time_left_in_words(seconds: float, words: str) -> None:
    assert time_left(seconds) == words


def offer(**changes: object) -> Offer:
    file = ModelFile(name="t", repo="acme/gated", file="t.gguf", bytes=GB, gated=True)
    fit = Fit("p", "P [b]x[/b]", "t", None, "unknown", "known only once it is here", download_bytes=GB)
    return replace(Offer("p", fit.title, fit, files=(file,), gated=("acme/gated",)), **changes)  # type: ignore[arg-type]


def test_a_gated_model_says_how_to_accept_its_licence() -> None:
    said = "\n".join(line.plain for line in details(offer(), MACHINE, 80))
    assert "huggingface.co/acme/gated" in said
    assert "HF_TOKEN" in said


def test_names_are_never_markup_and_too_little_disk_is_said() -> None:
    full = offer(fit=replace(offer().fit, enough_disk=False))
    assert "P [b]x[/b]" in row(full, MACHINE, 80, current=False).plain
    assert "no room on the disk" in row(full, MACHINE, 80, current=False).plain
    assert "530 MB of 1.0 GB here" in row(offer(partial_bytes=530_000_000), MACHINE, 80, current=False).plain
