"""The page of a result: complete, self-contained, and free of what a result may quote."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from app.bench.at_once import Throughput, load_summary
from app.bench.plan import Variations, configurations
from app.bench.report.page import html
from app.bench.report.plots import all_of, rendered
from app.bench.require import Verdict
from app.bench.result import Result, read_result
from app.bench.runner import Skipped
from app.cli import main
from tests.app.bench.conftest import MakeRow
from tests.app.bench.test_diff import MANIFEST
from tests.app.conftest import ROOT

PLOTS = ["speed-up", "acceptance", "lengths", "time-split", "delays", "memory", "throughput"]


@pytest.fixture
def result(row: MakeRow) -> Result:
    found = Result(MANIFEST, configurations(Variations(("plain", "auto", "fixed:2"))), ended="budget")
    for number, category in enumerate(("code", "<b>prose</b>")):
        for repeat in range(2):
            for config, speed in (("plain", 30.0), ("auto", 36.0), ("fixed:2", 27.0)):
                drafting = {} if config == "plain" else {
                    "drafted": 40, "accepted": 30, "lengths": (2,) * 20, "drafted_by_position": (20, 18), "accepted_by_position": (18, 12),
                }
                found.rows.append(row(config, speed + repeat, question_id=str(number), category=category, repeat=repeat, **drafting))
    found.throughput = [Throughput(n, mode, 0, 1, 100, 1.0, 5.0, None, 100.0) for n in (1, 2) for mode in ("plain", "auto")]
    found.verdicts = [Verdict("auto>=plain", "all", True, "auto is 1.2 times plain")]
    found.skipped = [Skipped("x\x1b[31m", "auto", "the context & more <is> full")]
    return found


class Reader(HTMLParser):
    """What the page refers to and holds."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("href", "src", "xlink:href"):
                self.links.append(value or "")
            if name == "id":
                self.ids.append(value or "")


def test_the_page_has_every_plot_and_refers_to_nothing_outside(result: Result) -> None:
    plots = all_of(result)
    assert [plot.name for plot in plots] == PLOTS
    page = html(result, plots)
    reader = Reader()
    reader.feed(page)
    assert reader.tags.count("svg") == len(PLOTS)
    assert not {"script", "img", "link", "iframe", "object"} & set(reader.tags)
    assert all(link.startswith("#") for link in reader.links)
    assert len(set(reader.ids)) == len(reader.ids)  # ids of two plots would take each other's clipping
    assert {link[1:] for link in reader.links} <= set(reader.ids)
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(reader.ids)


def test_what_the_result_quotes_is_text(result: Result) -> None:
    page = html(result, all_of(result))
    assert "<b>" not in page
    assert "&lt;b&gt;prose&lt;/b&gt;" in page
    assert "the context &amp; more &lt;is&gt; full" in page
    assert "\x1b" not in page


def test_verdicts_an_early_end_and_the_manifest_are_on_it(result: Result) -> None:
    page = html(result, [])
    assert "holds: auto&gt;=plain [all]: auto is 1.2 times plain" in page
    assert "The time was up" in page
    assert "&quot;paceline&quot;: &quot;1&quot;" in page


def test_a_run_of_plain_alone_has_a_page_too(row: MakeRow) -> None:
    found = Result(MANIFEST, configurations(Variations(("plain",))), rows=[row("plain", 30.0)], ended="repeats")
    plots = all_of(found)
    assert [plot.name for plot in plots] == ["time-split", "delays", "memory"]
    assert "30.0" in html(found, plots)


def test_an_empty_run_has_a_page(row: MakeRow) -> None:
    found = Result(MANIFEST, configurations(Variations()))
    assert all_of(found) == []
    assert "did not come to its end" in html(found, [])


def test_a_configuration_looks_the_same_in_every_plot(result: Result) -> None:
    for name in ("speed-up", "acceptance", "lengths"):
        svg = rendered(next(plot for plot in all_of(result) if plot.name == name), "svg").decode().lower()
        assert "#0072b2" in svg  # auto
        assert "#e69f00" in svg  # fixed:2


def test_the_same_result_gives_the_same_page(result: Result) -> None:
    assert html(result, all_of(result)) == html(result, all_of(result))


def test_the_command_writes_page_and_pictures(result: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "r.json"
    source.write_text(json.dumps(result.as_json()))
    assert read_result(source).as_json() == json.loads(json.dumps(result.as_json()))
    assert main(["bench", "report", str(source), "--png", str(tmp_path / "png"), "--svg", str(tmp_path / "svg")]) == 0
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")
    assert sorted(path.name for path in (tmp_path / "png").iterdir()) == sorted(f"{name}.png" for name in PLOTS)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (tmp_path / "png").iterdir())
    assert all(b"<svg" in path.read_bytes() for path in (tmp_path / "svg").iterdir())
    assert capsys.readouterr().out.splitlines()[0] == str(tmp_path / "r.html")


def test_what_is_there_is_replaced_only_when_asked(result: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, page, picture = tmp_path / "r.json", tmp_path / "r.html", tmp_path / "png" / f"{PLOTS[0]}.png"
    source.write_text(json.dumps(result.as_json()))
    picture.parent.mkdir()
    command = ["bench", "report", str(source), "--png", str(picture.parent)]
    for there in (page, picture):
        there.write_text("mine")
        assert main(command) == 1
        assert capsys.readouterr().err == f"paceline: {there} is there already; --overwrite replaces it\n"
        assert there.read_text() == "mine"
        assert main([*command, "--overwrite"]) == 0
        assert not there.read_bytes().startswith(b"mine")
        page.unlink()
        for drawn in picture.parent.iterdir():
            drawn.unlink()


def test_replies_without_a_token_have_no_ratios() -> None:
    empty = [Throughput(count, mode, 0, 1, 0, 1.0, None, 5.0, 0.0) for count in (1, 2) for mode in ("plain", "auto")]
    for entry in load_summary(empty):
        assert (entry["times_plain"], entry["times_fewest"], entry["joules_per_token"]) == (None, None, None)


def test_throughput_of_something_unknown_is_damaged(result: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, document = tmp_path / "r.json", json.loads(json.dumps(result.as_json()))
    document["at_once"]["rows"][0]["mode"] = "other"
    source.write_text(json.dumps(document))
    assert main(["bench", "report", str(source)]) == 1
    assert "the result is damaged (at_once: there is no configuration 'other')" in capsys.readouterr().err


def test_a_run_does_not_load_matplotlib() -> None:
    code = "import sys, app.commands.bench, app.bench.compose; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_the_page_never_replaces_the_result(result: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "run.html"
    source.write_text(json.dumps(result.as_json()))
    assert main(["bench", "report", str(source)]) == 1
    assert "is the result itself" in capsys.readouterr().err
    assert read_result(source).as_json() == json.loads(json.dumps(result.as_json()))
