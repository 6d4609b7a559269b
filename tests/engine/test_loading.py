"""What the engine loads, and how: pairs that fit together or not, caches of every kind, settings, progress, what is told."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine import (
    BadRequest,
    ChatMessage,
    ContextFull,
    Engine,
    LoadCancelled,
    LoadFailed,
    LoadProgress,
    Notice,
    SamplingParams,
)
from engine.llama.model import Model
from tests import tiny_models as tiny
from tests.engine.helpers import CLEAR, FREE, NEAR_TIE, Reference, ask, check_greedy, config

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
        for sampling in (FREE, SamplingParams(temperature=100, top_k=0, top_p=1, min_p=0, presence_penalty=1)):
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
        first = ask(engine, [ChatMessage("user", "What is this?")])
        chat = [ChatMessage("user", "What is this?"), ChatMessage("assistant", first.text), ChatMessage("user", "And that?")]
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
        chat = [ChatMessage("system", "Be brief."), ChatMessage("user", "a" * 80), ChatMessage("assistant", "b" * 80), ChatMessage("user", "c" * 40)]
        done = ask(engine, chat, max_tokens=30)
        (notice,) = done.notices
        assert "the 2 oldest messages" in notice
        assert done.report["usage"]["prompt_tokens"] < 200
        assert [event.dropped for event in done.events if isinstance(event, Notice)] == [2]
        with pytest.raises(ContextFull, match=r"the chat takes \d+ tokens and 240 fit"):
            ask(engine, chat, max_tokens=30, overflow="stop")
        short = [*chat[:1], *chat[3:]]
        assert ask(engine, short, max_tokens=30, overflow="stop").text == done.text


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
