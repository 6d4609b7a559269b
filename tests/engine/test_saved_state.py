"""A chat that goes on from disk: the replies of an engine that never stopped, with only what is new read again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import (
    ChatMessage,
    Engine,
    EngineProcess,
    Finished,
    GenerationRequest,
    PrefillProgress,
    SamplingParams,
)
from engine.saved_state import file_identity
from engine.state_file import open_state, write_state
from tests import tiny_models as tiny
from tests.engine.helpers import GREEDY, ask, config

FIRST = (ChatMessage("system", "Be brief."), ChatMessage("user", "Tell me about 21, and what you know of numbers."))
NEW = "And 22?"
TEMPLATE = "<|im_end|>\n<|im_start|>user\n" + "<|im_end|>\n<|im_start|>assistant\n"


def turn(engine: Engine, chat: tuple[ChatMessage, ...], **request: Any) -> tuple[tuple[ChatMessage, ...], dict[str, Any]]:
    """The chat with one more reply, and its report."""
    done = ask(engine, chat, **{"mode": "fixed:3"} | request)
    return (*chat, ChatMessage("assistant", done.text)), done.report


def go_on(chat: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    return (*chat, ChatMessage("user", NEW))


def read(report: dict[str, Any]) -> int:
    return int(report["usage"]["prompt_tokens"] - report["usage"]["cached_tokens"])


@pytest.fixture(scope="module")
def saved(target: Path, draft: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[ChatMessage, ...], str]:
    """A state after one turn, the chat so far, and the next reply of the engine that never stopped."""
    path = tmp_path_factory.mktemp("states") / "chat.kv"
    with Engine(config(target, draft)) as engine:
        assert engine.save_state(path) == 0
        assert not path.exists()
        chat, _ = turn(engine, FIRST)
        assert engine.save_state(path) == path.stat().st_size > 50_000
        return path, chat, turn(engine, go_on(chat))[0][-1].content


@pytest.fixture
def fresh(target: Path, draft: Path) -> Iterator[Engine]:
    with Engine(config(target, draft)) as engine:
        yield engine


# ---- going on


def test_a_restored_chat_reads_only_what_is_new_with_both_models(saved: tuple[Path, Any, str], fresh: Engine) -> None:
    path, chat, expected = saved
    assert fresh.restore_state(path)
    assert fresh._draft_model is not None
    known = [a for a, b in zip(fresh._draft_model.cache.held, fresh.cache.held, strict=False) if a == b]
    assert len(fresh.cache.held) - len(known) < 8
    longer, report = turn(fresh, go_on(chat))
    assert longer[-1].content == expected
    assert read(report) <= len(NEW + TEMPLATE)
    fresh._draft_model.begin(fresh.cache.held)
    assert fresh._draft_model.lag() <= 4


def test_restored_replies_survive_another_stop(saved: tuple[Path, Any, str], target: Path, draft: Path, tmp_path: Path) -> None:
    path, chat, _ = saved
    with Engine(config(target, draft)) as engine:
        longest = turn(engine, go_on(turn(engine, go_on(chat))[0]))[0]
    for _ in range(2):
        with Engine(config(target, draft)) as engine:
            assert engine.restore_state(path)
            chat, report = turn(engine, go_on(chat))
            assert read(report) <= len(NEW + TEMPLATE)
            path = tmp_path / "again.kv"
            engine.save_state(path)
    assert chat == longest


def test_a_seeded_reply_after_a_restore_is_the_same_bit_for_bit(target: Path, draft: Path, tmp_path: Path) -> None:
    free = {"sampling": SamplingParams(temperature=1.0), "seed": 7, "mode": "fixed:3", "max_tokens": 60}
    chat = (ChatMessage("user", "word " * 60),)
    with Engine(config(target, draft, batch=64)) as engine:
        chat, _ = turn(engine, chat)
        engine.save_state(tmp_path / "kv")
        expected = turn(engine, go_on(chat), **free)
    for batch in (64, 128):
        with Engine(config(target, draft, batch=batch)) as engine:
            assert engine.restore_state(tmp_path / "kv")
            found, report = turn(engine, go_on(chat), **free)
            assert report["usage"]["cached_tokens"] == (256 if batch == 64 else 0)
            if batch == 64:
                assert found == expected[0]


def test_a_chat_whose_thinking_is_cut_from_the_past_goes_on_too(thinking: Path, tmp_path: Path) -> None:
    """The template writes earlier replies without their thinking; only the remembered ids match what was read."""
    chat: tuple[ChatMessage, ...] = (ChatMessage("user", "Think."),)
    with Engine(config(thinking)) as engine:
        for _ in range(2):
            request = GenerationRequest(chat)
            prompt = engine._prompts.build(request, 400)
            reply = engine.target.encode("<think>" + "hm " * 15 + "</think>Yes.", special=False)
            engine.cache.match(prompt.ids)
            engine.cache.extend([*prompt.ids, *reply][engine.cache.wanted :], 1)
            text = "<think>" + "hm " * 15 + "</think>Yes."
            engine._prompts.remember(request, prompt, reply, text)
            chat = go_on((*chat, ChatMessage("assistant", text)))
        engine.save_state(tmp_path / "kv")
        expected, report = turn(engine, chat, mode="plain")
        assert read(report) < 60
    with Engine(config(thinking)) as engine:
        assert engine.restore_state(tmp_path / "kv")
        found, again = turn(engine, chat, mode="plain")
    assert (found, again["usage"]) == (expected, report["usage"])


@pytest.mark.parametrize("kind", ["sliding", "recurrent", "hybrid"])
def test_models_with_other_caches_go_on_too(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(kind)
    with Engine(config(model)) as engine:
        chat, _ = turn(engine, FIRST, mode="auto")
        engine.save_state(tmp_path / "kv")
        expected, report = turn(engine, go_on(chat), mode="auto")
    with Engine(config(model)) as engine:
        assert engine.restore_state(tmp_path / "kv")
        found, again = turn(engine, go_on(chat), mode="auto")
        assert (found, again["usage"]) == (expected, report["usage"])


@pytest.mark.parametrize("kind", ["sliding", "recurrent", "hybrid", "target"])
def test_a_restored_chat_can_be_changed_anywhere(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A state has only what the windows still see, and no recurrent state but the last: going back reads again."""
    model = request.getfixturevalue(kind)
    with Engine(config(model)) as engine:
        turn(engine, FIRST, mode="plain")
        other = (*FIRST, ChatMessage("user", "No."))
        engine.save_state(tmp_path / "kv")
    for changed in (FIRST, other, (*FIRST[:1], ChatMessage("user", "Hello"))):
        with Engine(config(model)) as engine:
            expected = turn(engine, changed, mode="plain")[0]
        with Engine(config(model)) as engine:
            assert engine.restore_state(tmp_path / "kv")
            assert turn(engine, changed, mode="plain")[0] == expected


def test_a_cancelled_reply_is_saved_as_far_as_it_was_read(target: Path, draft: Path, tmp_path: Path) -> None:
    with Engine(config(target, draft)) as engine:
        events = engine.generate(GenerationRequest(FIRST, sampling=GREEDY, mode="fixed:3"))
        for _ in range(8):
            next(events)
        engine.save_state(tmp_path / "kv")
        assert list(events) == []
    with Engine(config(target, draft)) as engine:
        expected = turn(engine, FIRST)[0]
    with Engine(config(target, draft)) as engine:
        assert engine.restore_state(tmp_path / "kv")
        found, report = turn(engine, FIRST)
        assert read(report) == 1
        assert found == expected


# ---- what is not taken


@pytest.mark.parametrize("change", [{"context": 768}, {"kv_type": "q8_0"}, {"flash_attention": True}], ids=str)
def test_another_setting_declines_it(change: dict[str, Any], saved: tuple[Path, Any, str], target: Path, draft: Path) -> None:
    path, chat, _ = saved
    with Engine(config(target, draft, **change)) as engine:
        assert not engine.restore_state(path)
        assert turn(engine, go_on(chat))[1]["usage"]["cached_tokens"] == 0


def test_another_target_declines_it(saved: tuple[Path, Any, str], models_dir: Path) -> None:
    """Same size, same header, other weights."""
    with Engine(config(tiny.tiny_target(models_dir, "target2", seed=5))) as engine:
        assert not engine.restore_state(saved[0])


def test_without_the_draft_or_with_another_the_target_s_part_holds(
    saved: tuple[Path, Any, str], target: Path, drafts: dict[str, Path], tmp_path: Path
) -> None:
    path, chat, expected = saved
    for draft in (None, drafts["poor"]):
        with Engine(config(target, draft)) as engine:
            assert engine.restore_state(path)
            found, report = turn(engine, go_on(chat), mode="auto")
            assert found[-1].content == expected
            assert read(report) <= len(NEW + TEMPLATE)
            engine.save_state(tmp_path / "kv")
        with Engine(config(target, drafts["good"])) as engine:
            assert engine.restore_state(tmp_path / "kv")
            assert engine._draft_model is not None
            assert engine._draft_model.cache.held == []
            assert turn(engine, go_on(found))[1]["usage"]["cached_tokens"] > report["usage"]["prompt_tokens"]


def test_no_damage_gets_through_and_the_engine_answers_on(saved: tuple[Path, Any, str], fresh: Engine, tmp_path: Path) -> None:
    path, chat, expected = saved
    whole, damaged, random_ = path.read_bytes(), tmp_path / "damaged", random.Random(3)
    cuts = [0, 1, 8, len(whole) - 1, *(random_.randrange(len(whole)) for _ in range(60))]
    versions = [whole[:cut] for cut in cuts]
    for _ in range(60):
        place = random_.randrange(len(whole))
        versions.append(whole[:place] + bytes([whole[place] ^ (1 << random_.randrange(8))]) + whole[place + 1 :])
    versions += [whole + b"x", whole[100:], b"\0" * len(whole)]
    for version in versions:
        damaged.write_bytes(version)
        assert not fresh.restore_state(damaged)
    assert not fresh.restore_state(tmp_path / "missing")
    assert turn(fresh, go_on(chat))[0][-1].content == expected


def test_a_whole_file_of_another_shape_is_declined(saved: tuple[Path, Any, str], fresh: Engine, tmp_path: Path) -> None:
    """Checksums are right; what they cover is not what this version writes."""
    with open_state(saved[0]) as file:
        assert file is not None
        facts, blocks = file.facts, []
        for block in file._blocks:
            content = file.read(block)
            assert content is not None
            blocks.append((block, bytes(content)))
    odd_facts: list[dict[str, Any]] = [
        {}, facts | {"format": 99}, facts | {"turns": None}, facts | {"turns": {"messages": [["user"]], "turns": []}},
        facts | {"turns": {"messages": [], "turns": [{"messages": 0, "shared": "x", "own": [], "dropped": 0}]}},
    ]
    tokens, state = blocks[0], blocks[1]
    odd_blocks = [
        [], blocks[:1], [(tokens[0] | {"in_whole_batches": "x"}, tokens[1]), *blocks[1:]],
        [(tokens[0], tokens[1][:-4]), *blocks[1:]],              # one token fewer than the cache has
        [(tokens[0], tokens[1] * 40), *blocks[1:]],              # more than the context holds
        [(tokens[0], tokens[1][:-4] + b"\xff" * 4), *blocks[1:]],  # no such token
        [(tokens[0], tokens[1][:-1]), *blocks[1:]],              # not whole tokens
        [tokens, (state[0], state[1][: len(state[1]) // 2])],    # llama.cpp itself must refuse this one
        [tokens, (state[0], b"")],
    ]
    path = tmp_path / "odd"
    for odd, parts in [*((f, blocks) for f in odd_facts), *((facts, b) for b in odd_blocks)]:
        write_state(path, odd, parts)
        assert not fresh.restore_state(path), (odd.keys(), len(parts))
        assert fresh.cache.context.length() == len(fresh.cache.held)
    assert turn(fresh, go_on(saved[1]))[0][-1].content == saved[2]


# ---- in a process


def test_the_same_through_the_engine_s_process(saved: tuple[Path, Any, str], target: Path, draft: Path, tmp_path: Path) -> None:
    path, chat, expected = saved
    request = GenerationRequest(go_on(chat), sampling=GREEDY, max_tokens=40, seed=1, mode="fixed:3")
    with EngineProcess(config(target, draft)) as process:
        assert not process.restore_state(tmp_path / "none")
        assert process.restore_state(path)
        *_, last = process.generate(request)
        assert isinstance(last, Finished)
        assert last.text == expected
        assert read(last.report) <= len(NEW + TEMPLATE)
        events = process.generate(replace(request, max_tokens=300))
        assert isinstance(next(events), PrefillProgress)
        assert process.save_state(tmp_path / "kv") == (tmp_path / "kv").stat().st_size
        assert list(events) == []
    with EngineProcess(config(target, draft)) as process:
        assert process.restore_state(tmp_path / "kv")
        *_, last = process.generate(request)
        assert isinstance(last, Finished)
        assert last.text == expected


def test_a_file_s_identity_sees_any_other_weights(target: Path, tmp_path: Path) -> None:
    copy = tmp_path / "renamed.gguf"
    copy.write_bytes(target.read_bytes())
    assert file_identity(copy) == file_identity(target)
    copy.write_bytes(target.read_bytes()[:-1] + b"x")
    assert file_identity(copy) != file_identity(target)
    pieces = [tmp_path / f"split-0000{i}-of-00002.gguf" for i in (1, 2)]
    for piece in pieces:
        piece.write_bytes(b"a" * 9000)
    before = file_identity(pieces[0])
    pieces[1].write_bytes(b"b" * 9000)
    assert file_identity(pieces[0]) != before
