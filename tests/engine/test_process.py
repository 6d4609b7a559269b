"""EngineProcess: the engine's own answers out of a child process, and a parent that outlives whatever befalls it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from engine import (
    BadRequest,
    ChatMessage,
    Engine,
    EngineDied,
    EngineProcess,
    Finished,
    GenerationRequest,
    LoadCancelled,
    LoadConfig,
    LoadFailed,
    LoadProgress,
    SamplingParams,
    TextDelta,
)

REQUEST = GenerationRequest(
    messages=(ChatMessage("user", "Tell me something."),), max_tokens=40, sampling=SamplingParams(temperature=0)
)


@pytest.fixture(scope="module")
def config(target: Path, draft: Path, tmp_path_factory: pytest.TempPathFactory) -> LoadConfig:
    return LoadConfig(target, draft, context=1024, threads=1, log_file=tmp_path_factory.mktemp("log") / "engine.log")


@pytest.fixture
def process(config: LoadConfig) -> Iterator[EngineProcess]:
    with EngineProcess(config) as engine:
        yield engine


def finish(engine: Engine | EngineProcess, request: GenerationRequest = REQUEST) -> Finished:
    *_, last = engine.generate(request)
    assert isinstance(last, Finished)
    return last


def test_answers_what_the_engine_in_this_process_answers(process: EngineProcess, config: LoadConfig) -> None:
    with Engine(config) as engine:
        for mode in ("plain", "auto", "fixed:3"):
            request = replace(REQUEST, mode=mode)
            assert finish(process, request).text == finish(engine, request).text
        assert process.count_tokens("abc") == engine.count_tokens("abc")
        assert process.context == engine.context


def test_a_request_error_comes_over_as_what_it_was(process: EngineProcess) -> None:
    with pytest.raises(BadRequest, match="unknown mode"):
        finish(process, replace(REQUEST, mode="fast"))
    assert finish(process).text


def test_a_cancel_right_after_the_request_is_not_lost(process: EngineProcess) -> None:
    events = process.generate(replace(REQUEST, max_tokens=1000))
    process.cancel()
    *_, last = events
    assert isinstance(last, Finished)
    assert last.reason == "cancelled"


def test_a_cancel_from_another_thread_keeps_the_text_so_far_and_the_next_reply_right(process: EngineProcess) -> None:
    expected = finish(process).text
    seen: list[str] = []
    for event in process.generate(replace(REQUEST, max_tokens=1000, mode="plain")):
        if isinstance(event, TextDelta) and not seen:
            threading.Thread(target=process.cancel).start()
        if isinstance(event, TextDelta):
            seen.append(event.text)
        if isinstance(event, Finished):
            assert event.reason == "cancelled"
            assert event.text == "".join(seen)
    assert finish(process).text == expected


def test_a_reply_that_is_not_read_to_its_end_does_not_spill_into_the_next(process: EngineProcess) -> None:
    expected = finish(process).text
    events = process.generate(replace(REQUEST, max_tokens=1000))
    next(events)
    events.close()
    assert finish(process).text == expected


def test_a_killed_child_is_one_line_and_a_new_one_can_be_started(process: EngineProcess, config: LoadConfig) -> None:
    events = process.generate(replace(REQUEST, max_tokens=1000))
    next(events)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(EngineDied, match="memory ran out") as caught:
        list(events)
    assert "\n" not in str(caught.value)
    assert not process.alive
    with pytest.raises(EngineDied):
        finish(process)
    with EngineProcess(config) as again:
        assert finish(again).text


def test_a_child_that_stops_answering_is_given_up(config: LoadConfig) -> None:
    with EngineProcess(config, hang_seconds=3) as process:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(EngineDied, match="not answered for 3 s"):
            finish(process)
        assert not process.alive


def test_a_file_that_makes_ggml_abort_ends_the_child_only(aborting: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineDied, match="SIGABRT"):
        EngineProcess(LoadConfig(aborting, threads=1, log_file=tmp_path / "log"))


def test_a_bad_file_is_the_engines_own_error(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="no such file"):
        EngineProcess(LoadConfig(tmp_path / "missing.gguf"))


def test_loading_can_be_called_off(config: LoadConfig) -> None:
    with pytest.raises(LoadCancelled):
        EngineProcess(replace(config, profile_dir=None), lambda _: False)


def test_the_child_ends_with_a_parent_that_was_killed(config: LoadConfig, tmp_path: Path) -> None:
    """The parent gets no chance to say goodbye; its child must not keep the model's memory."""
    script = tmp_path / "parent.py"
    script.write_text(
        "import sys, time\n"
        "from pathlib import Path\n"
        "from engine import EngineProcess, LoadConfig\n"
        "if __name__ == '__main__':\n"
        f"    engine = EngineProcess(LoadConfig(Path({str(config.target)!r}), threads=1))\n"
        "    print(engine.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(root)}
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    child_gone, _ = psutil.wait_procs([child], timeout=20)
    assert child_gone == [child]


def test_closing_saves_what_was_learned_and_frees_the_process(config: LoadConfig, tmp_path: Path) -> None:
    process = EngineProcess(replace(config, profile_dir=tmp_path))
    written = next(tmp_path.glob("*.json")).stat().st_mtime_ns
    finish(process)
    time.sleep(0.01)
    process.close()
    process.close()
    assert not process.alive
    assert next(tmp_path.glob("*.json")).stat().st_mtime_ns > written


def test_native_output_stays_off_the_terminal(config: LoadConfig, capfd: pytest.CaptureFixture[str]) -> None:
    with EngineProcess(config) as process:
        finish(process)
    assert capfd.readouterr() == ("", "")


def test_a_reply_left_open_does_not_become_the_next_one(process: EngineProcess) -> None:
    expected = finish(process).text
    left = process.generate(replace(REQUEST, messages=(ChatMessage("user", "Something else."),), max_tokens=1000))
    next(left)
    assert finish(process).text == expected
    assert list(left) == []


def test_a_reply_never_begun_does_not_become_the_next_one(process: EngineProcess) -> None:
    expected = finish(process).text
    process.generate(replace(REQUEST, messages=(ChatMessage("user", "Something else."),), max_tokens=1000))
    assert finish(process).text == expected


def test_tokens_are_counted_while_a_reply_runs_and_none_of_its_events_is_lost(process: EngineProcess) -> None:
    expected = finish(process).text
    events = process.generate(REQUEST)
    text = ""
    for event in events:
        assert process.count_tokens("abc") == 3
        text += event.text if isinstance(event, TextDelta) else ""
    assert text == expected


def test_a_load_that_hangs_is_ended_when_its_owner_turns_away(config: LoadConfig) -> None:
    """While nothing is heard, what the owner wants is asked again and again."""

    class TurnedAway(Exception):
        pass

    stopped: list[psutil.Process] = []

    def on_progress(_: LoadProgress) -> bool:
        if stopped:
            raise TurnedAway
        stopped.extend(child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline()))
        stopped[-1].suspend()
        return True

    with pytest.raises(TurnedAway):
        EngineProcess(config, on_progress, hang_seconds=30)
    assert not stopped[-1].is_running()


@pytest.mark.skipif(not hasattr(os, "nice"), reason="this system knows no niceness")
def test_a_process_that_is_to_yield_does(config: LoadConfig) -> None:
    before = os.nice(0)
    with EngineProcess(config, niceness=5) as process:
        assert process.pid is not None
        assert psutil.Process(process.pid).nice() == min(19, before + 5)
