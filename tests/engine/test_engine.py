"""The engine on tiny pairs: the same reply in every mode, after every mishap, and what is said about it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from engine import (
    BadRequest,
    ChatMessage,
    Engine,
    EngineError,
    Finished,
    GenerationRequest,
    PrefillProgress,
    RoundDone,
    SamplingParams,
    TextDelta,
    errors,
)
from tests import tiny_models as tiny
from tests.engine.helpers import CLEAR, FREE, Done, Reference, ask, check_greedy, config, question

MODES = ["plain", "auto", "ngram", "draft", *(f"fixed:{n}" for n in range(1, 9))]


def user(text: str) -> ChatMessage:
    return ChatMessage("user", text)


# ---- replies


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("draft", ["good", "poor"])
def test_every_mode_writes_plain_decoding_s_text(
    mode: str, draft: str, target: Path, drafts: dict[str, Path], plain: str, request: pytest.FixtureRequest
) -> None:
    with Engine(config(target, drafts[draft])) as engine:
        done = ask(engine, CLEAR, mode=mode, max_tokens=60)
    assert done.text == plain
    assert done.reason == "length"
    if mode.startswith("fixed"):
        assert done.report["speculation"]["by_drafter"]["model"]["drafted"] > 0


def test_auto_drafts_where_it_pays_and_writes_plain_decoding_s_text(paying_pair: Engine, plain: str) -> None:
    for mode in ("auto", "draft"):
        done = ask(paying_pair, CLEAR, mode=mode, max_tokens=60)
        assert done.text == plain
        assert done.report["speculation"]["by_drafter"]["model"]["accepted"] > 10


def test_a_second_turn_reads_only_what_is_new(target: Path, drafts: dict[str, Path]) -> None:
    with Engine(config(target, drafts["good"])) as engine:
        first = ask(engine, [user("What is this?")], mode="fixed:3")
        chat = [user("What is this?"), ChatMessage("assistant", first.text), user("And that?")]
        second = ask(engine, chat, mode="fixed:3")
        usage = second.report["usage"]
        assert usage["prompt_tokens"] - usage["cached_tokens"] <= len("<|im_end|>\n<|im_start|>user\nAnd that?<|im_end|>\n<|im_start|>assistant\n")
        assert usage["cached_tokens"] >= first.report["usage"]["prompt_tokens"] + first.report["usage"]["completion_tokens"] - 1
        engine.forget()
        again = ask(engine, chat, mode="plain")
        assert again.report["usage"]["cached_tokens"] == 0
        assert again.text == second.text


def test_events_come_in_order_and_add_up(pair: Engine) -> None:
    events = ask(pair, CLEAR * 20, mode="fixed:2").events
    assert isinstance(events[0], PrefillProgress)
    assert isinstance(events[-1], Finished)
    assert sum(isinstance(e, Finished) for e in events) == 1
    for event in events:
        if isinstance(event, PrefillProgress):
            assert event.cached <= event.done <= event.total == len(CLEAR) * 20
        if isinstance(event, TextDelta):
            assert event.text
            assert set(event.origins) <= {"target", "model", "ngram"}


# ---- seeds


@pytest.mark.parametrize("paying_pair", [0.0, 0.05], indirect=True, ids=["at once", "after a slow start"])
@pytest.mark.parametrize("mode", ["plain", "auto", "ngram", "fixed:4"])
def test_a_seed_gives_the_same_text_whatever_ran_before(mode: str, paying_pair: Engine) -> None:
    """The draft has read nothing, then the first reply, then another text, then the prompt itself."""
    engine, between = paying_pair, [user("Something else altogether, and longer.")]
    again = question([user("Say something.")], sampling=FREE, mode=mode, seed=7, max_tokens=60)
    first = whole(engine, again)
    assert whole(engine, again).tokens == first.tokens
    ask(engine, between, sampling=FREE, mode="auto", seed=None)
    assert whole(engine, again).tokens == first.tokens
    ask(engine, [user("Say something.")], mode="fixed:4", max_tokens=5)
    assert whole(engine, again).tokens == first.tokens
    assert ask(engine, [user("Say something.")], sampling=FREE, mode=mode, seed=8, max_tokens=60).tokens != first.tokens


def test_a_seed_gives_the_same_bits_whatever_the_caches_hold(target: Path, drafts: dict[str, Path]) -> None:
    """The text of these models hardly ever hangs on the last bits of a logit; that of quantised ones does, in fifteen
    of sixteen replies of 40 tokens."""
    with Engine(config(target, drafts["good"], batch=64)) as engine:
        again = question(CLEAR * 9, sampling=FREE, mode="fixed:3", seed=3)
        seen = []
        for before in (None, CLEAR * 9, CLEAR * 3, CLEAR * 12, "another"):
            if before is not None:
                ask(engine, before, sampling=FREE, mode="fixed:3", seed=4, max_tokens=7)
            done = whole(engine, again)
            seen.append([(r.candidates, r.confidence, r.emitted) for r in done.rounds])
        assert all(each == seen[0] for each in seen)
        assert whole(engine, again).report["usage"]["cached_tokens"] == 128, "whole batches are still reused"
        assert ask(engine, CLEAR * 9).report["usage"]["cached_tokens"] == len(CLEAR) * 9 - 1


def whole(engine: Engine, request: GenerationRequest) -> Done:
    *events, last = engine.generate(request)
    assert isinstance(last, Finished)
    return Done((*events, last), last.text, last.reason, last.report)


def test_a_seed_gives_the_same_text_in_another_process(target: Path, drafts: dict[str, Path], tmp_path: Path) -> None:
    """The first process measures the machine, the second reads the profile."""
    code = (
        "import sys; from pathlib import Path; from engine import *;"
        "config = LoadConfig(Path(sys.argv[1]), Path(sys.argv[2]), context=512, threads=1, profile_dir=Path(sys.argv[3]));"
        "engine = Engine(config);"
        "sampling = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0);"
        "request = GenerationRequest(prompt='Say something.', sampling=sampling, seed=7, max_tokens=80);"
        "print(ascii([e for e in engine.generate(request)][-1].text))"
    )
    command = [sys.executable, "-c", code, str(target), str(drafts["good"]), str(tmp_path / "profiles")]
    root = Path(__file__).parents[2]
    runs = [subprocess.run(command, cwd=root, capture_output=True, text=True, check=True) for _ in range(2)]
    assert runs[0].stdout == runs[1].stdout
    assert len(runs[0].stdout) > 60


def test_without_a_seed_texts_differ_and_the_report_says_how_to_repeat_one(pair: Engine) -> None:
    replies = [ask(pair, sampling=FREE, seed=None, mode="fixed:3") for _ in range(3)]
    assert len({reply.text for reply in replies}) == 3
    assert ask(pair, sampling=FREE, seed=replies[0].report["seed"], mode="fixed:3").text == replies[0].text


# ---- cancelling


def test_a_cancel_between_any_two_events_leaves_the_next_turn_as_in_a_fresh_engine(
    target: Path, drafts: dict[str, Path], plain: str
) -> None:
    with Engine(config(target, drafts["good"], batch=64)) as engine:
        for after in (*range(8), 15, 30):
            engine.forget()
            text, events = "", engine.generate(question(CLEAR * 16, mode="fixed:3", max_tokens=200))
            for i, event in enumerate(events):
                if isinstance(event, TextDelta):
                    text += event.text
                if i == after:
                    engine.cancel()
            assert isinstance(event, Finished)
            assert (event.reason, event.text) == ("cancelled", text)
            assert event.report["usage"]["completion_tokens"] == len(text.encode())
            assert ask(engine, CLEAR, mode="fixed:3", max_tokens=60).text == plain


def test_a_cancel_before_the_first_step_is_not_lost(pair: Engine, plain: str) -> None:
    events = pair.generate(question(CLEAR))
    pair.cancel()
    *_, last = events
    assert isinstance(last, Finished)
    assert (last.reason, last.text) == ("cancelled", "")
    assert ask(pair, CLEAR, max_tokens=60).text == plain


def test_a_cancel_from_another_thread_ends_a_long_prompt_and_a_long_reply(target: Path, drafts: dict[str, Path]) -> None:
    """Both would take far longer than the bound; a decode of these models takes under a millisecond."""
    with Engine(config(target, drafts["good"], batch=64, context=2048)) as engine:
        for prompt, sign in (("long " * 380, PrefillProgress), ("short", TextDelta)):
            seen = threading.Event()

            def cancel(seen: threading.Event = seen) -> None:
                assert seen.wait(10)
                engine.cancel()

            thread = threading.Thread(target=cancel)
            thread.start()
            cancelled = 0.0
            for event in engine.generate(question(prompt, mode="fixed:4", max_tokens=1500)):
                if isinstance(event, sign) and not seen.is_set():
                    seen.set()
                    thread.join()
                    cancelled = time.perf_counter()
            assert isinstance(event, Finished)
            assert event.reason == "cancelled"
            assert time.perf_counter() - cancelled < 1.0


def test_a_cancelled_reply_is_not_read_again(target: Path, drafts: dict[str, Path]) -> None:
    with Engine(config(target, drafts["good"])) as engine:
        events = engine.generate(question([user("Go on.")], mode="fixed:3", max_tokens=200))
        for event in events:
            if isinstance(event, RoundDone) and event.round.context > 60:
                engine.cancel()
        assert isinstance(event, Finished)
        chat = [user("Go on."), ChatMessage("assistant", event.text), user("And?")]
        usage = ask(engine, chat).report["usage"]
        before = event.report["usage"]
        assert usage["cached_tokens"] >= before["prompt_tokens"] + before["completion_tokens"] - 1


# ---- replies that go wrong


def test_closing_a_reply_early_leaves_the_next_one_right(pair: Engine, plain: str) -> None:
    for steps in range(1, 12):
        events = pair.generate(question(CLEAR * 4, mode="fixed:3", max_tokens=100))
        for _ in range(steps):
            next(events)
        events.close()  # type: ignore[attr-defined]
        assert ask(pair, CLEAR, mode="fixed:3", max_tokens=60).text == plain


@pytest.mark.parametrize("seed", range(3))
def test_after_any_series_of_mishaps_the_next_reply_is_a_fresh_engine_s(seed: int, target: Path, drafts: dict[str, Path]) -> None:
    """Whole replies, cancelled, abandoned and refused ones, forgotten caches, in random order and modes."""
    prompts = [CLEAR, "Tell me about 35", CLEAR * 5, CLEAR * 5 + "x", "Tell me about 17, please. " * 6]
    rng = random.Random(seed)
    with Engine(config(target, drafts["fair"], batch=64)) as engine, Reference(target) as reference:
        for _ in range(25):
            prompt, mode = rng.choice(prompts), rng.choice(MODES)
            how: dict[str, Any] = {"mode": mode, "max_tokens": rng.randint(1, 40)}
            if rng.random() < 0.4:
                how |= {"sampling": FREE, "seed": rng.choice([None, 1])}
            match rng.choice(["cancel", "close", "refuse", "forget", "stop", "whole"]):
                case "cancel" | "close" as mishap:
                    events = engine.generate(question(prompt, **how))
                    for _ in zip(range(rng.randint(1, 12)), events, strict=False):
                        pass
                    engine.cancel()
                    if mishap == "cancel":
                        list(events)
                    else:
                        events.close()  # type: ignore[attr-defined]
                case "refuse":
                    with pytest.raises(BadRequest):
                        ask(engine, prompt, **how | {"stop": ("",)})
                case "forget":
                    engine.forget()
                case "stop":
                    ask(engine, prompt, **how, stop=("e", "2p"))
                case "whole":
                    ask(engine, prompt, **how)
            prompt, mode = rng.choice(prompts), rng.choice(MODES)
            done = ask(engine, prompt, mode=mode, max_tokens=25)
            assert check_greedy(reference, engine.target.encode(prompt, special=True), done, max_tokens=25) <= 1


@pytest.mark.parametrize(
    ("request_fields", "complaint"),
    [
        ({"mode": "fixed:0"}, "unknown mode"),
        ({"mode": "fast"}, "unknown mode"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"seed": -1}, "seed"),
        ({"seed": 1 << 63}, "seed"),
        ({"stop": ("",)}, "stop string is empty"),
        ({"sampling": SamplingParams(grammar="root ::= nowhere")}, "grammar"),
        ({"sampling": SamplingParams(grammar="")}, "grammar"),
        ({"sampling": SamplingParams(json_schema="[")}, "JSON schema"),
        ({"sampling": SamplingParams(logit_bias=((10**6, 1.0),))}, "logit bias"),
        ({"trace": Path("/nowhere/at/all")}, "trace"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_in_one_line_and_holds_nothing_open(
    request_fields: dict[str, Any], complaint: str, pair: Engine, plain: str, tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        with pytest.raises(BadRequest, match=complaint) as error:
            ask(pair, CLEAR, **{"trace": tmp_path / "trace.jsonl"} | request_fields)
        assert "\n" not in str(error.value)
        assert open_files(tmp_path) == [], "while somebody still looks at the traceback"
        del error
    assert ask(pair, CLEAR, max_tokens=60).text == plain


def test_an_empty_prompt_is_refused_and_shows_nothing_of_the_reply_before(pair: Engine, plain: str) -> None:
    ask(pair, "My secret is 42.")
    for nothing in ("", []):
        with pytest.raises(BadRequest, match=r"prompt is empty|neither messages nor a prompt"):
            ask(pair, nothing)
    assert ask(pair, CLEAR, max_tokens=60).text == plain


def test_every_error_can_be_named_to_another_process() -> None:
    """The engine's process sends an error as the name of a class in engine.errors."""
    kinds = [errors.EngineError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        assert getattr(errors, kind.__name__) is kind


def open_files(folder: Path) -> list[str]:
    """Files of `folder` that this process holds open; none where the system does not tell."""
    links = Path("/proc/self/fd")
    found = [str(link.readlink()) for link in links.iterdir() if link.exists()] if links.is_dir() else []
    return [path for path in found if path.startswith(str(folder))]


def test_a_place_where_nothing_is_allowed_ends_in_an_error_not_in_an_abort(pair: Engine, plain: str) -> None:
    ends = tuple((token, float("-inf")) for token in (tiny.END_OF_TEXT, tiny.IM_END))
    for temperature in (0.0, 1.0):
        sampling = SamplingParams(temperature=temperature, grammar='root ::= "ab"', logit_bias=ends)
        for mode in ("plain", "fixed:3"):
            with pytest.raises(BadRequest, match="no token is allowed"):
                ask(pair, CLEAR, sampling=sampling, mode=mode)
    assert ask(pair, CLEAR, max_tokens=60).text == plain


@pytest.mark.parametrize("mode", ["fixed:3", "draft"])
def test_a_mode_that_needs_a_draft_model_says_so_where_there_is_none(mode: str, target: Path) -> None:
    """K39: loaded but not active, and no word about it."""
    with Engine(config(target)) as engine:
        done = ask(engine, CLEAR, mode=mode)
        assert "no draft model is in use" in done.report["speculation"]["state"]
        assert done.notices == [f"mode {mode} needs a draft model and none is in use: decoding plainly"]
        assert done.drafted == 0


@pytest.mark.parametrize("mode", ["auto", "plain", "ngram", "draft", "fixed:3"])
def test_every_round_knows_what_a_plain_token_would_take(mode: str, paying_pair: Engine) -> None:
    rounds = ask(paying_pair, CLEAR, mode=mode).rounds  # with a seed, so that no clock changes what `paying` says
    assert {round_.plain_seconds for round_ in rounds} == {0.0301}


def test_a_new_reply_ends_one_that_was_left_open(pair: Engine, plain: str) -> None:
    """As after an error in whoever was reading, whose traceback keeps the reply alive."""
    left = pair.generate(question("Something else.", mode="fixed:3"))
    for _ in range(4):
        next(left)
    events = pair.generate(question(CLEAR, mode="fixed:3", max_tokens=60))
    next(events)
    assert list(left) == []
    *_, last = events
    assert isinstance(last, Finished)
    assert last.text == plain


def test_a_closed_engine_says_so_and_ends_its_reply(target: Path) -> None:
    engine = Engine(config(target))
    events = engine.generate(question(CLEAR))
    for _ in range(4):
        next(events)
    engine.close()
    assert list(events) == []
    for call in (lambda: ask(engine, CLEAR), lambda: engine.count_tokens("text")):
        with pytest.raises(EngineError, match="the engine has been closed"):
            call()


def test_closing_twice_is_harmless(target: Path) -> None:
    engine = Engine(config(target))
    engine.close()
    engine.close()


# ---- the trace


def test_the_trace_has_one_line_per_round_and_agrees_with_the_report(pair: Engine, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    done = ask(pair, CLEAR, mode="fixed:3", max_tokens=60, trace=path)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == len(done.rounds)
    for line, round_ in zip(lines, done.rounds, strict=True):
        assert line["candidates"] == list(round_.candidates)
        assert line["accepted"] == round_.accepted
        assert line["emitted"] == list(round_.emitted)
        assert line["why"]
        assert line["ms"]["total"] >= line["ms"]["draft"] + line["ms"]["target"] + line["ms"]["sampling"] - 0.01
    assert "".join(piece for line in lines for piece in line["text"]) == done.text
    ask(pair, CLEAR, mode="fixed:3", max_tokens=5, trace=path)
    assert len(path.read_text().splitlines()) > len(lines), "appended"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_trace_that_a_full_disk_cut_short_is_said_and_the_reply_is_whole(pair: Engine, plain: str) -> None:
    done = ask(pair, CLEAR, mode="plain", max_tokens=60, trace=Path("/dev/full"))
    assert done.text == plain
    assert done.notices == ["the trace in /dev/full is not whole: No space left on device"]
