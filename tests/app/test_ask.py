"""`paceline ask` end to end on a tiny real pair: what reaches standard output, and how it ends when it cannot go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app import __version__
from app.cli import main
from tests.app.conftest import ROOT, Paceline
from tests.tiny_models import IM_END

QUESTION = "Name three rivers."
CUT = "paceline: the reply was cut at 24 tokens; --max-tokens allows more\n"
ESC = 27


@pytest.fixture(autouse=True)
def _home(home: Path) -> None:
    """Every test here keeps its files to itself."""


@pytest.fixture
def pair(target: Path, draft: Path) -> list[str]:
    return ["--target", str(target), "--draft", str(draft), "-n", "24", "-t", "0", "--ctx", "2048", "--threads", "1"]


@pytest.fixture
def ask(pair: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs `ask` in this process, with nothing piped in; returns exit code, output and remarks."""
    monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: SIM115 - pytest's own stdin refuses to be read

    def run(*args: str) -> tuple[int, str, str]:
        code = main(["ask", *pair, *args])
        return code, *capsys.readouterr()

    return run


def test_only_the_reply_goes_to_standard_output(ask: Any) -> None:
    code, out, err = ask(QUESTION)
    assert code == 0
    assert out.strip()
    assert out.endswith("\n")
    assert err == CUT


@pytest.mark.parametrize("mode", ["plain", "ngram", "draft", "fixed:3"])
def test_every_mode_gives_the_same_greedy_reply(ask: Any, mode: str) -> None:
    assert ask(QUESTION, "--mode", mode)[1] == ask(QUESTION)[1]


def test_without_streaming_the_output_is_the_same(ask: Any) -> None:
    assert ask(QUESTION, "--no-stream") == ask(QUESTION)


def test_json_has_the_promised_shape(ask: Any, target: Path, draft: Path) -> None:
    streamed = ask(QUESTION, "--mode", "fixed:3")[1]
    code, out, _ = ask(QUESTION, "--mode", "fixed:3", "--seed", "7", "--json")
    answer = json.loads(out)
    assert code == 0
    assert list(answer) == ["text", "finish_reason", "usage", "timings", "speculation", "memory", "models", "tuned", "seed", "version"]
    assert answer["text"].rstrip("\n") == streamed.rstrip("\n")
    assert answer["finish_reason"] == "length"
    assert set(answer["usage"]) == {"prompt_tokens", "cached_tokens", "completion_tokens"}
    assert answer["usage"]["completion_tokens"] == 24
    assert {"load_ms", "ttft_ms", "prefill_tps", "decode_tps", "itl_ms"} <= set(answer["timings"])
    assert set(answer["timings"]["itl_ms"]) == {"p50", "p95", "p99"}
    assert {
        "mode", "state", "rounds", "drafted", "accepted", "acceptance_rate", "tokens_per_round", "drafted_by_position",
        "accepted_by_position", "by_drafter", "parked_rounds", "lengths", "time_ms",
    } <= set(answer["speculation"])
    assert answer["speculation"]["drafted"] > 0
    assert set(answer["speculation"]["time_ms"]) == {"draft", "target", "sampling", "other"}
    assert answer["memory"]["peak_rss_bytes"] > 0
    assert answer["models"] == {"target": {"path": str(target)}, "draft": {"path": str(draft)}}
    assert (answer["seed"], answer["version"]) == (7, __version__)


def test_stats_go_to_standard_error(ask: Any) -> None:
    _, out, err = ask(QUESTION, "--stats", "--mode", "fixed:3")
    assert out == ask(QUESTION, "--mode", "fixed:3")[1]
    for word in ("tokens/s", "first token", "rounds", "drafted tokens", "GB peak"):
        assert word in err


def test_files_and_the_system_prompt_are_part_of_the_request(ask: Any, tmp_path: Path) -> None:
    def prompt_tokens(*args: str) -> int:
        return int(json.loads(ask(QUESTION, "--json", *args)[1])["usage"]["prompt_tokens"])

    note = tmp_path / "note.txt"
    note.write_text("x" * 100)
    assert prompt_tokens("-f", str(note)) >= prompt_tokens() + 100
    assert prompt_tokens("--system", "y" * 50) >= prompt_tokens() + 50


def test_piped_text_is_part_of_the_question_or_the_question(paceline: Paceline, pair: list[str]) -> None:
    alone = paceline("ask", *pair, "--json", stdin=QUESTION)
    asked = paceline("ask", *pair, "--json", QUESTION)
    both = paceline("ask", *pair, "--json", QUESTION, stdin="z" * 100)
    assert json.loads(alone.stdout)["text"] == json.loads(asked.stdout)["text"]
    assert json.loads(both.stdout)["usage"]["prompt_tokens"] >= json.loads(asked.stdout)["usage"]["prompt_tokens"] + 100


def test_a_trace_has_one_line_for_each_round(ask: Any, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    answer = json.loads(ask(QUESTION, "--mode", "fixed:3", "--json", "--trace", str(trace))[1])
    rounds = [json.loads(line) for line in trace.read_text().splitlines()]
    assert len(rounds) >= answer["speculation"]["rounds"] > 0


def test_escape_sequences_of_a_model_never_reach_the_output(ask: Any) -> None:
    """The bias makes the model write nothing but ESC."""
    code, out, _ = ask(QUESTION, "--logit-bias", f"{ESC}:1000")
    assert (code, out) == (0, "\n")
    assert json.loads(ask(QUESTION, "--logit-bias", f"{ESC}:1000", "--json")[1])["text"] == ""


def test_a_grammar_and_a_schema_shape_the_reply(ask: Any, tmp_path: Path) -> None:
    grammar, schema = tmp_path / "g.gbnf", tmp_path / "s.json"
    grammar.write_text('root ::= "yes" | "no"')
    schema.write_text('{"enum": ["left", "right"]}')
    assert ask(QUESTION, "--grammar", str(grammar))[1] in ("yes\n", "no\n")
    assert json.loads(ask(QUESTION, "--json-schema", str(schema))[1]) in ("left", "right")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "nothing is asked"),
        (["-f", "{tmp}/gone.txt", "hi"], "cannot read {tmp}/gone.txt: No such file or directory"),
        (["-f", "{target}", "hi"], "{target} is binary, not text"),
        (["--top-p", "0", "hi"], "top_p is 0.0; it must be above 0 and at most 1"),
        (["--json-schema", "{tmp}/bad", "hi"], "{tmp}/bad is not JSON"),
        (["--json-schema", "{tmp}/deep.json", "hi"], "{tmp}/deep.json is not JSON"),
        (["--json-schema", "{tmp}/good.json", "--grammar", "{tmp}/bad", "hi"], "not both"),
        (["--trace", "{tmp}/none/t", "hi"], "{tmp}/none/t: No such file or directory"),
        (["--target", "{tmp}/gone.gguf", "hi"], "there is no file {tmp}/gone.gguf"),
        (["--target", "{truncated}", "hi"], "truncated.gguf"),
        (["--target", "{tmp}/bad", "hi"], "bad"),
        (["--target", "", "hi"], "there is no model named ''"),
        (["--target", "no-such-model", "hi"], "there is no model named 'no-such-model'"),
        (["--mode", "draft", "--draft", "none", "hi"], "mode draft needs a draft model"),
    ],
)
def test_what_cannot_be_is_one_line_and_a_failure(
    ask: Any, arguments: list[str], complaint: str, tmp_path: Path, target: Path, truncated: Path
) -> None:
    (tmp_path / "bad").write_text("{ not json")
    (tmp_path / "good.json").write_text("{}")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    places = {"tmp": tmp_path, "target": target, "truncated": truncated}
    code, out, err = ask(*(argument.replace("{ ", "{{ ").format(**places) for argument in arguments))
    assert code in (1, 2)
    assert out == ""
    assert complaint.format(**places) in err
    assert len(err.splitlines()) == 1


def test_without_a_model_a_pipe_is_told_how_to_get_one(paceline: Paceline) -> None:
    done = paceline("ask", "--offline", QUESTION)
    assert (done.returncode, done.stdout) == (1, "")
    assert "--offline rules out fetching" in done.stderr
    done = paceline("ask", QUESTION)
    assert done.returncode == 1
    assert "add --yes to download" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_home_that_cannot_be_written_is_no_obstacle(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_HOME", "/dev/null/home")
    code, out, err = ask(QUESTION)
    assert (code, bool(out.strip())) == (0, True)
    assert "will not be kept" in err


def test_what_is_kept_is_private(ask: Any, home: Path) -> None:
    ask(QUESTION)
    kept = list(home.rglob("*"))
    assert kept
    assert [path for path in kept if path.stat().st_mode & 0o077] == []


def test_a_full_disk_ends_the_reply_with_one_line(paceline: Paceline, pair: list[str]) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    with open("/dev/full", "wb") as full:
        done = paceline("ask", *pair, QUESTION, stdout=full, stderr=subprocess.PIPE, capture_output=False)
    assert (done.returncode, done.stderr) == (1, "paceline: cannot write to standard output: No space left on device\n")


def running(pair: list[str]) -> subprocess.Popen[bytes]:
    """A reply that takes a while, with its first bytes read."""
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "ask", *pair, "-n", "1500", "--logit-bias", f"{IM_END}:-1000", QUESTION],
        cwd=ROOT, env=dict(os.environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
    assert process.stdout
    assert process.stdout.read(1)
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_reply_cleanly(pair: list[str], number: int, code: int) -> None:
    process = running(pair)
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (code, b"")
    assert out.endswith(b"\n")
    assert len(out) < 1400, "the reply was finished before the signal came"


def test_a_reader_that_leaves_ends_the_reply_silently(pair: list[str]) -> None:
    process = running(pair)
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    assert process.wait(timeout=20) == 141
    assert process.stderr.read() == b""
    process.stderr.close()
