"""The engine on tiny pairs: the same reply in every mode, after every mishap, and what is said about it."""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import (
    BadRequest,
    ChatMessage,
    ContextFull,
    Engine,
    EngineError,
    Finished,
    GenerationRequest,
    LoadCancelled,
    LoadConfig,
    LoadFailed,
    LoadProgress,
    Notice,
    PrefillProgress,
    RoundDone,
    SamplingParams,
    TextDelta,
    errors,
)
from engine.llama.model import Model
from tests import tiny_models as tiny
from tests.engine.helpers import NEAR_TIE, Done, Reference, ask, check_greedy, question

CLEAR = "Tell me about 21"
"""Its greedy reply keeps 0.1 between the two highest logits for 60 tokens (test_decoder.py checks that)."""
MODES = ["plain", "auto", "ngram", "draft", *(f"fixed:{n}" for n in range(1, 9))]


def config(target: Path, draft: Path | None = None, **how: Any) -> LoadConfig:
    return LoadConfig(target, draft, **{"context": 512, "threads": 1} | how)


def user(text: str) -> ChatMessage:
    return ChatMessage("user", text)


@pytest.fixture(scope="module")
def pair(target: Path, drafts: dict[str, Path]) -> Iterator[Engine]:
    with Engine(config(target, drafts["good"])) as engine:
        yield engine


@pytest.fixture(scope="module")
def reference(target: Path) -> Iterator[Reference]:
    with Reference(target) as reference:
        yield reference


@pytest.fixture(scope="module")
def plain(pair: Engine) -> str:
    return ask(pair, CLEAR, mode="plain", max_tokens=60).text


def paying(directory: Path, reading: float = 0.0) -> None:
    """Rewrite the profile in `directory` for a machine where drafts cost next to nothing, but for the first of a
    reply: `reading` seconds for each prompt token the draft has not seen."""
    (path,) = directory.glob("*.json")
    data = json.loads(path.read_text())
    rows = {str(n): 0.03 + 0.0001 * n for n in range(1, 65)}
    steps = {"1": 0.0001, "2": 0.0002, "20": 0.0002 + 18 * reading, "400": 0.0002 + 398 * reading}
    for name in ("calibrated", "learned"):
        data[name] = {"target": [rows], "draft": [steps]}
    path.write_text(json.dumps(data))


@pytest.fixture
def paying_pair(target: Path, drafts: dict[str, Path], tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The good pair on a machine where drafting pays."""
    with Engine(config(target, drafts["good"], profile_dir=tmp_path / "profiles")):
        pass
    paying(tmp_path / "profiles", getattr(request, "param", 0.0))
    with Engine(config(target, drafts["good"], profile_dir=tmp_path / "profiles")) as engine:
        yield engine


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


SAMPLED = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


@pytest.mark.parametrize("paying_pair", [0.0, 0.05], indirect=True, ids=["at once", "after a slow start"])
@pytest.mark.parametrize("mode", ["plain", "auto", "ngram", "fixed:4"])
def test_a_seed_gives_the_same_text_whatever_ran_before(mode: str, paying_pair: Engine) -> None:
    """The draft has read nothing, then the first reply, then another text, then the prompt itself."""
    engine, between = paying_pair, [user("Something else altogether, and longer.")]
    again = question([user("Say something.")], sampling=SAMPLED, mode=mode, seed=7, max_tokens=60)
    first = whole(engine, again)
    assert whole(engine, again).tokens == first.tokens
    ask(engine, between, sampling=SAMPLED, mode="auto", seed=None)
    assert whole(engine, again).tokens == first.tokens
    ask(engine, [user("Say something.")], mode="fixed:4", max_tokens=5)
    assert whole(engine, again).tokens == first.tokens
    assert ask(engine, [user("Say something.")], sampling=SAMPLED, mode=mode, seed=8, max_tokens=60).tokens != first.tokens


def test_a_seed_gives_the_same_bits_whatever_the_caches_hold(target: Path, drafts: dict[str, Path]) -> None:
    """The text of these models hardly ever hangs on the last bits of a logit; that of quantised ones does, in fifteen
    of sixteen replies of 40 tokens."""
    with Engine(config(target, drafts["good"], batch=64)) as engine:
        again = question(CLEAR * 9, sampling=SAMPLED, mode="fixed:3", seed=3)
        seen = []
        for before in (None, CLEAR * 9, CLEAR * 3, CLEAR * 12, "another"):
            if before is not None:
                ask(engine, before, sampling=SAMPLED, mode="fixed:3", seed=4, max_tokens=7)
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
    replies = [ask(pair, sampling=SAMPLED, seed=None, mode="fixed:3") for _ in range(3)]
    assert len({reply.text for reply in replies}) == 3
    assert ask(pair, sampling=SAMPLED, seed=replies[0].report["seed"], mode="fixed:3").text == replies[0].text


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
                how |= {"sampling": SAMPLED, "seed": rng.choice([None, 1])}
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


# ---- pairs


@pytest.mark.parametrize(("big", "small"), [("target", "padded"), ("padded", "draft")])
def test_padding_of_any_length_on_either_side_is_no_mismatch(
    big: str, small: str, plain: str, request: pytest.FixtureRequest
) -> None:
    """K1: logits of 262 and of 646 rows side by side, sampled and greedy."""
    with Engine(config(request.getfixturevalue(big), request.getfixturevalue(small))) as engine:
        assert engine.notices == ()
        done = ask(engine, CLEAR, mode="fixed:4", max_tokens=60)
        assert done.text == plain
        assert done.accepted > 10
        for sampling in (SAMPLED, SamplingParams(temperature=100, top_k=0, top_p=1, min_p=0, presence_penalty=1)):
            assert len(ask(engine, sampling=sampling, mode="fixed:4", max_tokens=60).tokens) > 0


def test_a_token_only_the_target_has_is_written_and_drafting_ends_there(padded: Path, draft: Path) -> None:
    """Forced by a bias, after which the draft cannot follow."""
    lonely = 400
    with Engine(config(padded, draft)) as engine:
        for more in ({}, {"presence_penalty": 2.0, "dry_multiplier": 1.0}, {"temperature": 1.0}):
            sampling = SamplingParams(**{"temperature": 0, "logit_bias": ((lonely, 15.0),)} | more)  # type: ignore[arg-type]
            for mode in ("plain", "auto", "fixed:4"):
                done = ask(engine, sampling=sampling, mode=mode, max_tokens=20)
                assert lonely in done.tokens
                assert len(done.tokens) == 20


def test_a_draft_with_other_texts_is_left_out_and_named(target: Path, mismatched: Path, plain: str) -> None:
    with Engine(config(target, mismatched)) as engine:
        (notice,) = engine.notices
        assert "without the draft model" in notice
        assert "4 of 262 token texts differ, first id 81 ('X' against 'Q')" in notice
        assert "use a draft of the same family" in notice
        assert engine.describe()["draft"] is None
        assert ask(engine, CLEAR, mode="auto", max_tokens=60).text == plain


def broken(folder: Path, kind: str, target: Path) -> Path:
    path = folder / f"{kind}.gguf"
    if kind == "a folder":
        path.mkdir()
    elif kind == "not a GGUF":
        path.write_bytes(b"<html>404</html>" * 100)
    elif kind == "empty":
        path.touch()
    elif kind == "cut short":
        path.write_bytes(target.read_bytes()[:300_000])
    return path


BROKEN = ["missing", "a folder", "not a GGUF", "empty", "cut short"]


@pytest.mark.parametrize("kind", BROKEN)
def test_a_file_that_is_no_model_is_one_line(
    kind: str, target: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(LoadFailed) as error:
        Engine(config(broken(tmp_path, kind, target)))
    line = str(error.value)
    assert kind in line
    assert "\n" not in line
    assert {"missing": "no such file", "a folder": "a folder, not a model file"}.get(kind, "cannot load") in line
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", BROKEN)
def test_a_draft_that_is_no_model_is_left_out_with_a_line(kind: str, target: Path, tmp_path: Path, plain: str) -> None:
    with Engine(config(target, broken(tmp_path, kind, target))) as engine:
        (notice,) = engine.notices
        assert notice.startswith("running without the draft model: ")
        assert "\n" not in notice
        assert ask(engine, CLEAR, max_tokens=60).text == plain


def test_a_model_in_a_folder_with_an_odd_name_loads(target: Path, tmp_path: Path) -> None:
    """Bytes that are no UTF-8, as old archives leave them."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    try:
        folder.mkdir()
        path = folder / "naïve model.gguf"
        path.write_bytes(target.read_bytes())
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    with Engine(config(path, profile_dir=tmp_path / "profiles")) as engine:
        assert ask(engine, CLEAR).reason == "length"


def test_a_draft_that_learned_a_shorter_context_drafts_as_far_as_that(target: Path, plain: str, tmp_path: Path) -> None:
    short = tiny.noisy_copy(tiny.tiny_target(tmp_path, "short", context=256), 0.05)
    with Engine(config(target, short)) as engine, Reference(target) as reference:
        assert ask(engine, CLEAR, mode="fixed:4", max_tokens=60).text == plain
        done = ask(engine, CLEAR * 12, mode="fixed:4", max_tokens=200)
        assert check_greedy(reference, engine.target.encode(CLEAR * 12, special=True), done, max_tokens=200) <= 2
        assert max(r.context for r in done.rounds if r.candidates) < 256 < done.rounds[-1].context


# ---- caches that cannot go back


@pytest.mark.parametrize("kind", ["sliding", "recurrent", "hybrid"])
@pytest.mark.parametrize("mode", ["auto", "ngram", "draft", "fixed:4"])
def test_models_with_other_caches_write_plain_decoding_s_text(
    kind: str, mode: str, request: pytest.FixtureRequest
) -> None:
    """The draft is a noisy copy; for recurrent and hybrid models it is refused, and the lookup may still draft."""
    path = request.getfixturevalue(kind)
    with Reference(path) as reference, Engine(config(path, tiny.noisy_copy(path, 0.05))) as engine:
        prompt = engine.target.encode(CLEAR * 10, special=True)
        for tokens in (40, 3, 60):  # from the same prompt: each goes back over the last
            done = ask(engine, CLEAR * 10, mode=mode, max_tokens=tokens)
            assert check_greedy(reference, prompt, done, max_tokens=tokens) <= 1
        if kind == "sliding" and mode == "fixed:4":
            assert engine.notices == ()
            assert done.accepted > 5


def test_what_cannot_be_taken_back_is_said_at_load(
    target: Path, recurrent: Path, hybrid: Path, drafts: dict[str, Path]
) -> None:
    expected = {
        (recurrent, None): ["cannot take tokens back (recurrent layers), so replies are decoded plainly"],
        (hybrid, None): [],
        (target, hybrid): ["running without the draft model: hybrid.gguf cannot take drafted tokens back"],
        (target, recurrent): ["running without the draft model: recurrent.gguf cannot take drafted tokens back"],
    }
    for (big, small), lines in expected.items():
        with Engine(config(big, small)) as engine:
            assert len(engine.notices) == len(lines)
            assert all(line in notice for line, notice in zip(lines, engine.notices, strict=True))


def test_a_recurrent_model_goes_on_from_its_own_reply(recurrent: Path) -> None:
    with Engine(config(recurrent)) as engine:
        first = ask(engine, [user("What is this?")])
        chat = [user("What is this?"), ChatMessage("assistant", first.text), user("And that?")]
        second = ask(engine, chat)
        assert second.report["usage"]["cached_tokens"] > first.report["usage"]["prompt_tokens"]
        engine.forget()
        assert ask(engine, chat).text == second.text


# ---- settings of the context


@pytest.mark.parametrize(
    "settings",
    [{"flash_attention": True}, {"flash_attention": False}, {"kv_type": "q8_0"}, {"kv_type": "q4_0"},
     {"kv_type": "q8_0", "flash_attention": True}],
    ids=str,
)
def test_cache_types_and_flash_attention(settings: dict[str, Any], target: Path, drafts: dict[str, Path]) -> None:
    """A quantised cache is coarse: one row and several differ by up to 0.05 (six texts of 120 tokens)."""
    tie = 0.1 if "kv_type" in settings else NEAR_TIE
    with Engine(config(target, drafts["good"], **settings)) as engine, Reference(target, **settings) as reference:
        for mode in ("plain", "fixed:4", "ngram"):
            done = ask(engine, CLEAR, mode=mode, max_tokens=60)
            check_greedy(reference, engine.target.encode(CLEAR, special=True), done, tie, max_tokens=60)


def test_a_quantised_cache_without_flash_attention_is_refused_in_one_line(target: Path) -> None:
    with pytest.raises(LoadFailed, match="flash") as error:
        Engine(config(target, kv_type="q8_0", flash_attention=False))
    assert "\n" not in str(error.value)


def test_the_context_is_clipped_to_what_the_model_was_trained_on(target: Path, tmp_path: Path) -> None:
    short = tiny.tiny_target(tmp_path, "short", context=256)
    with Engine(config(short, context=4096)) as engine:
        assert engine.context == 256
        assert engine.notices == ("context set to 256 tokens, all that short.gguf was trained on",)
        assert ask(engine, CLEAR, max_tokens=1000).reason == "context"


def test_the_oldest_turns_leave_first_and_the_user_is_told(target: Path) -> None:
    with Engine(config(target, context=256)) as engine:
        chat = [ChatMessage("system", "Be brief."), user("a" * 80), ChatMessage("assistant", "b" * 80), user("c" * 40)]
        done = ask(engine, chat, max_tokens=30)
        (notice,) = done.notices
        assert "the 2 oldest messages" in notice
        assert done.report["usage"]["prompt_tokens"] < 200
        assert [event.dropped for event in done.events if isinstance(event, Notice)] == [2]
        with pytest.raises(ContextFull, match=r"the chat takes \d+ tokens and 240 fit"):
            ask(engine, chat, max_tokens=30, overflow="stop")
        short = [*chat[:1], *chat[3:]]
        assert ask(engine, short, max_tokens=30, overflow="stop").text == done.text


@pytest.mark.parametrize("mode", ["auto", "plain", "ngram", "draft", "fixed:3"])
def test_every_round_knows_what_a_plain_token_would_take(mode: str, paying_pair: Engine) -> None:
    rounds = ask(paying_pair, CLEAR, mode=mode).rounds  # with a seed, so that no clock changes what `paying` says
    assert {round_.plain_seconds for round_ in rounds} == {0.0301}


# ---- loading


def test_loading_reports_its_progress_and_can_be_stopped_at_every_stage(target: Path, draft: Path, tmp_path: Path) -> None:
    seen: list[LoadProgress] = []
    Engine(config(target, draft), lambda step: not seen.append(step)).close()  # type: ignore[func-returns-value]
    stages = [step.stage for step in seen]
    assert sorted(set(stages), key=stages.index) == ["target", "draft", "measure"]
    assert all(0 <= step.fraction <= 1 for step in seen)
    for stage in ("target", "draft", "measure"):
        with pytest.raises(LoadCancelled):
            Engine(config(target, draft), lambda step, stage=stage: step.stage != stage)  # type: ignore[misc]


def test_a_measured_machine_is_not_measured_again(target: Path, draft: Path, tmp_path: Path, plain: str) -> None:
    def stages(**how: Any) -> set[str]:
        seen: set[str] = set()
        with Engine(config(target, draft, profile_dir=tmp_path, **how), lambda step: not seen.add(step.stage)) as engine:  # type: ignore[func-returns-value]
            assert ask(engine, CLEAR, max_tokens=60).text == plain
        return seen

    assert "measure" in stages()
    assert "measure" not in stages()
    assert "measure" in stages(flash_attention=False), "other settings, other costs"
    for path in tmp_path.glob("*.json"):
        path.write_text('{"format": 1, "key"')
    assert "measure" in stages()
    assert "measure" not in stages()


def test_a_folder_that_cannot_be_written_costs_nothing_but_the_profile(target: Path, tmp_path: Path, plain: str) -> None:
    (tmp_path / "file").touch()
    with Engine(config(target, profile_dir=tmp_path / "file" / "profiles", log_file=tmp_path / "file" / "log")) as engine:
        assert ask(engine, CLEAR, max_tokens=60).text == plain


def test_what_the_engine_says_about_itself(pair: Engine, target: Path) -> None:
    about = pair.describe()
    assert about["target"]["path"] == str(target)
    assert about["context"] == pair.context == 512
    assert json.loads(json.dumps(about)) == about
    assert pair.count_tokens("naïve <|im_end|>") == len("naïve <|im_end|>".encode())


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [({"context": 255}, "context is 255; it must be 256 or more"), ({"context": -1}, "context"),
     ({"batch": 63}, "batch is 63; it must be 64 or more"), ({"max_block": 0}, "max_block"), ({"threads": 0}, "threads"),
     ({"batch_threads": -2}, "batch_threads"), ({"kv_type": "q5_1"}, "kv_type is 'q5_1'; it must be f16, q8_0 or q4_0")],
)
def test_settings_that_make_no_sense_are_refused_before_anything_is_read(
    setting: dict[str, Any], complaint: str, target: Path
) -> None:
    with pytest.raises(BadRequest, match=complaint):
        config(target, **setting)


def test_a_draft_that_is_left_out_leaves_memory_too(target: Path, mismatched: Path, recurrent: Path) -> None:
    for unused in (mismatched, recurrent):
        with Engine(config(target, unused)):
            gc.collect()
            loaded = [m.path for m in gc.get_objects() if isinstance(m, Model) and m._pointer is not None]
            assert unused not in loaded
            assert target in loaded


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
