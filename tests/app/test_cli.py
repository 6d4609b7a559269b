from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import click
import pytest

from app import __version__
from app.cli import COMMANDS, LazyGroup, cli, main
from app.commands.ask import ask
from app.commands.bench_run import run as bench_run
from app.errors import AppError, Interrupted, OutputClosed
from app.options import LoadChoices, loading_from, sampling_from
from engine.sampling import SamplingParams
from engine.values import LoadConfig
from tests.app.conftest import ROOT, Paceline

HEAVY = {"engine", "models", "llama_cpp", "numpy", "rich", "huggingface_hub", "pydantic", "textual"}


@pytest.mark.parametrize("args", [["--version"], ["--help"], ["ask", "--help"], ["models", "--help"], ["bench", "run", "--help"]])
def test_help_and_version_import_nothing_heavy(args: list[str]) -> None:
    """Stands for "under 0.4 s": a clock would fail on a busy machine, an import of numpy fails everywhere."""
    code = f"import sys; from app.cli import main; main({args!r}); sys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stderr.split()) == set()
    assert done.stdout


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"paceline {__version__}\n"


@pytest.mark.parametrize(
    "args",
    [
        ["nonsense"], ["ask", "--nonsense"], ["ask", "--mode", "fixed:0", "hi"], ["ask", "--top-k", "many", "hi"],
        ["ask", "--logit-bias", "5", "hi"], ["ask", "--max-tokens", "0", "hi"], ["ask", "--grammar", "/nothing", "hi"],
        ["models", "nonsense"], ["models", "pull"], ["bench", "nonsense"],
        ["bench", "run", "--prompts", os.devnull, "--modes", "fast"],
    ],
)
def test_wrong_usage_is_one_line_that_points_to_the_help(args: list[str], home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(r"paceline: .+ \(see paceline.* --help\)\n", captured.err)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (AppError("no luck"), 1, "paceline: no luck\n"),
        (AppError("two\nlines \x1b[31m"), 1, "paceline: two lines \n"),
        (OSError(28, "No space left on device", "x.json"), 1, "paceline: x.json: No space left on device\n"),
        (MemoryError(), 1, "paceline: out of memory\n"),
        (KeyboardInterrupt(), 130, ""),
        (Interrupted(), 130, ""),
        (OutputClosed(), 141, ""),
    ],
)
def test_a_failure_is_one_line_and_an_exit_code(
    error: BaseException, code: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing_command(monkeypatch, error)
    assert main(["models"]) == code
    assert capsys.readouterr().err.lstrip("\n") == line


def test_a_fault_of_ours_is_one_line_too_and_keeps_its_traceback(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing_command(monkeypatch, ZeroDivisionError("oh"))
    assert main(["models"]) == 1
    log = home / "logs" / "crash.log"
    assert capsys.readouterr().err == f"paceline: internal error: ZeroDivisionError: oh (details in {log})\n"
    assert "Traceback" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0


def test_a_fault_whose_traceback_finds_no_room_is_one_line_all_the_same(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing_command(monkeypatch, ZeroDivisionError("oh"))
    (home / "logs").mkdir(parents=True)
    (home / "logs" / "crash.log").symlink_to("/dev/full")
    assert main(["models"]) == 1
    assert capsys.readouterr().err == "paceline: internal error: ZeroDivisionError: oh\n"


def test_a_help_text_whose_reader_left_ends_as_any_output(paceline: Paceline) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = paceline("bench", "run", "--help", stdout=writer, stderr=subprocess.PIPE, capture_output=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_command_without_a_subcommand_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 2
    assert "pull" in capsys.readouterr().err


def test_every_command_can_be_imported() -> None:
    with click.Context(cli) as context:
        assert isinstance(cli, LazyGroup)
        assert all(cli.get_command(context, name) is not None for name in COMMANDS)


@pytest.mark.parametrize(("command", "temperature"), [(ask, SamplingParams().temperature), (bench_run, 0.0)])
def test_every_sampling_setting_has_an_option_that_shows_its_default(command: click.Command, temperature: float) -> None:
    options = {param.name: param for param in command.params if isinstance(param, click.Option)}
    defaults = {field.name: field.default for field in fields(SamplingParams)} | {"temperature": temperature}
    for name in defaults.keys() - {"grammar", "json_schema", "logit_bias"}:
        assert f"[default: {defaults[name]}]" in (options[name].help or "")
    assert options["logit_bias"].multiple


def test_options_that_are_not_given_leave_the_engines_defaults() -> None:
    params = dict(ask.make_context("ask", ["hi"]).params)
    assert loading_from(params) == LoadChoices()
    own = {"question", "files", "system", "mode", "max_tokens", "stop", "seed", "json_schema", "grammar", "stats", "trace",
           "no_stream", "as_json"}
    assert sampling_from({name: value for name, value in params.items() if name not in own}) == {}


def test_options_that_are_given_arrive() -> None:
    params = dict(ask.make_context("ask", ["-t", "0", "--top-k", "5", "--logit-bias", "3:-1.5", "--target", "x", "hi"]).params)
    assert loading_from(params).target == "x"
    given = sampling_from(params)
    assert (given["temperature"], given["top_k"], given["logit_bias"]) == (0.0, 5, ((3, -1.5),))


def test_loading_options_show_the_engines_defaults() -> None:
    options = {param.name: param for param in ask.params if isinstance(param, click.Option)}
    defaults = {field.name: field.default for field in fields(LoadConfig)}
    for option, field in (("ctx", "context"), ("kv_type", "kv_type")):
        assert f"[default: {defaults[field]}]" in (options[option].help or "")
    assert {field.name for field in fields(LoadChoices)} <= set(options)


def test_a_closed_standard_output_is_told(paceline: Paceline) -> None:
    done = paceline("models", "list", "--json", stdout=1, stderr=subprocess.PIPE, capture_output=False, preexec_fn=lambda: os.close(1))
    assert (done.returncode, done.stderr) == (1, "paceline: standard output is closed, so there is nowhere to write the answer\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_one_line(paceline: Paceline) -> None:
    with open("/dev/full", "wb") as full:
        done = paceline("models", "list", "--json", stdout=full, stderr=subprocess.PIPE, capture_output=False)
    assert (done.returncode, done.stderr) == (1, "paceline: cannot write to standard output: No space left on device\n")


def failing_command(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    @click.command("models")
    def fail() -> None:
        raise error

    monkeypatch.setattr("app.commands.models.models", fail)


def test_an_option_before_the_command_is_answered_with_where_it_goes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--target", "x.gguf"]) == 2
    assert "paceline chat --target" in capsys.readouterr().err
