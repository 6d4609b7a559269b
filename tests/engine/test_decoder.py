"""Greedy replies are plain decoding's, token for token, whoever drafts, whatever is asked for, however they end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import SamplingParams
from engine.acceptance import AcceptanceModel
from engine.adaptive_length import AdaptiveLength
from engine.errors import DecodeFailed
from engine.length import LengthPolicy
from tests import tiny_models as tiny
from tests.engine.helpers import (
    CLEAR,
    PROMPT,
    Loop,
    PullAt,
    Reference,
    Script,
    check_greedy,
    costs,
    fixed,
    knows,
)

LETTERS = 'root ::= [abc]*'
"""Text over three letters: full of repetitions, so that the lookup drafts all the time and is often right."""
SCHEMA = json.dumps({
    "type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"],
})
SETTINGS = {
    "nothing else": {},
    "a repeat penalty": {"repeat_penalty": 1.3},
    "presence and frequency penalties": {"presence_penalty": 1.0, "frequency_penalty": 0.5},
    "penalties over the whole context": {"presence_penalty": 2.0, "penalty_last_n": -1},
    "DRY": {"dry_multiplier": 2.0, "dry_allowed_length": 1},
    "a logit bias": {"logit_bias": ((ord("e"), 3.0), (ord("S"), -5.0), (ord("x"), float("-inf")))},
    "a grammar": {"grammar": LETTERS},
    "a grammar with penalties": {"grammar": LETTERS, "frequency_penalty": 0.4, "dry_multiplier": 1.0},
    "a JSON schema": {"json_schema": SCHEMA},
}


def everyone() -> AdaptiveLength:
    """The rule of `auto` on a machine where drafting pays."""
    return AdaptiveLength(costs(), AcceptanceModel(), learn_costs=False)


POLICIES: dict[str, Callable[[], LengthPolicy]] = {
    **{f"fixed:{n}": lambda n=n: fixed(n) for n in (1, 2, 3, 4, 5, 6, 7, 8, 48)},
    "lookup": lambda: fixed(7, "ngram"),
    "auto": everyone,
}


@pytest.fixture(scope="module")
def reference(target: Path) -> Iterator[Reference]:
    with Reference(target) as reference:
        yield reference


@pytest.fixture(scope="module")
def loops(target: Path, drafts: dict[str, Path], models_dir: Path) -> Iterator[dict[str, Loop]]:
    """The target with each draft; `unrelated` has never seen the target."""
    paths = {**drafts, "unrelated": tiny.tiny_target(models_dir, "unrelated", seed=9)}
    loops = {name: Loop(target, path) for name, path in paths.items()}
    yield loops
    for loop in loops.values():
        loop.close()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("draft", ["good", "fair", "poor", "unrelated"])
def test_greedy_text_is_plain_decoding_s(draft: str, policy: str, loops: dict[str, Loop], reference: Reference) -> None:
    loop = loops[draft]
    done = loop.run(policy=POLICIES[policy](), max_tokens=60)
    assert check_greedy(reference, loop.encode(PROMPT), done, max_tokens=60) <= 2
    if policy.startswith("fixed") and policy != "fixed:48":
        assert done.drafted > 20
        rate = done.accepted / done.drafted
        assert {"good": rate > 0.25, "fair": rate > 0.05, "poor": rate < 0.3, "unrelated": rate < 0.1}[draft]


@pytest.mark.parametrize("policy", ["fixed:2", "fixed:8", "fixed:48", "lookup", "auto"])
@pytest.mark.parametrize("settings", SETTINGS)
def test_greedy_text_is_plain_decoding_s_with(
    settings: str, policy: str, loops: dict[str, Loop], reference: Reference
) -> None:
    loop = loops["good"]
    request = {"sampling": SamplingParams(temperature=0, **SETTINGS[settings]), "max_tokens": 50}  # type: ignore[arg-type]
    done = loop.run(policy=POLICIES[policy](), **request)
    assert check_greedy(reference, loop.encode(PROMPT), done, **request) <= 2
    if settings == "a grammar":
        assert set(done.text) <= set("abc")
        assert done.accepted > 10
    if settings == "a JSON schema" and done.reason == "stop":
        assert set(json.loads(done.text)) == {"name", "age"}


# ---- how a reply ends. CLEAR's greedy replies keep 0.1 between the two highest logits, so they are the same on
# every machine, and tests can place what they need exactly.

ENDING = "Tell me about 36"
BLOCKS = (1, 2, 3, 5, 8)


@pytest.fixture(scope="module")
def loop(target: Path) -> Iterator[Loop]:
    with Loop(target) as loop:
        yield loop


@pytest.fixture(scope="module")
def plain(loop: Loop, reference: Reference) -> list[int]:
    """The first 60 tokens of the greedy reply to CLEAR."""
    done = loop.run(CLEAR, max_tokens=60)
    for i in range(60):
        runner_up, best = np.sort(reference.logits([*loop.encode(CLEAR), *done.tokens[:i]]))[-2:]
        assert best - runner_up > 0.1
    return done.tokens


@pytest.fixture(scope="module")
def ending(models_dir: Path) -> Iterator[Loop]:
    """A target that ends its replies: to ENDING with the 21st token."""
    with Loop(tiny.tiny_target(models_dir, "ending", ending=1.5)) as loop:
        yield loop


def holds_the_reply(loop: Loop, prompt: str, tokens: list[int]) -> bool:
    """The session has committed the prompt and the reply, nothing else."""
    return loop.session.tokens == [*loop.encode(prompt), *tokens]


@pytest.mark.parametrize("length", BLOCKS)
def test_stop_strings_end_the_text_wherever_blocks_and_tokens_are_cut(
    length: int, loop: Loop, plain: list[int], reference: Reference
) -> None:
    text = bytes(plain).decode()
    for start in range(1, 40, 3):
        stop = (text[start : start + 1 + start % 5], text[start + 2 : start + 8], "never in there")
        request: dict[str, Any] = {"stop": stop, "max_tokens": 60}
        drafter = knows(loop.encode(CLEAR), plain)
        done = loop.run(CLEAR, policy=fixed(length), drafter=drafter, **request)
        assert check_greedy(reference, loop.encode(CLEAR), done, **request) == 0
        assert done.reason == "stop"
        assert not any(round_.ended for round_ in done.rounds), "a stop string's last token is part of what was written"
        assert holds_the_reply(loop, CLEAR, done.tokens)


@pytest.mark.parametrize("length", BLOCKS)
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 9, 20])
def test_the_limit_ends_the_reply_inside_a_block(limit: int, length: int, loop: Loop, plain: list[int]) -> None:
    done = loop.run(CLEAR, policy=fixed(length), drafter=knows(loop.encode(CLEAR), plain), max_tokens=limit)
    assert (done.tokens, done.reason) == (plain[:limit], "length")
    assert done.text == bytes(plain[:limit]).decode()
    assert holds_the_reply(loop, CLEAR, done.tokens)


@pytest.mark.parametrize("length", BLOCKS)
def test_a_stop_and_the_limit_in_one_block_end_it_as_plain_decoding_does(
    length: int, loop: Loop, plain: list[int], reference: Reference
) -> None:
    text = bytes(plain).decode()
    reasons = set()
    for limit in range(8, 14):
        request: dict[str, Any] = {"stop": (text[8:11],), "max_tokens": limit}
        done = loop.run(CLEAR, policy=fixed(length), drafter=knows(loop.encode(CLEAR), plain), **request)
        assert check_greedy(reference, loop.encode(CLEAR), done, **request) == 0
        reasons.add((limit, done.reason))
    assert {(10, "length"), (11, "stop"), (13, "stop")} <= reasons


@pytest.mark.parametrize("length", BLOCKS)
def test_an_end_token_inside_an_accepted_block_ends_the_reply(length: int, ending: Loop) -> None:
    plain = ending.run(ENDING, max_tokens=60)
    assert (plain.reason, len(plain.tokens)) == ("stop", 20)
    assert plain.report["speculation"]["tokens_per_round"] == 1.0, "19 tokens and the end in 20 rounds"
    assert [round_.ended for round_ in plain.rounds] == [False] * 20 + [True]
    prompt, beyond = ending.encode(ENDING), [tiny.IM_END, *b"and so on and so on"]
    # What would have been drafted behind the end: the target's own continuation, and then some.
    for behind in (beyond, [tiny.IM_END, *ending.run([*prompt, *plain.tokens, tiny.IM_END], max_tokens=9).tokens]):
        drafter = knows(prompt, [*plain.tokens, *behind])
        done = ending.run(ENDING, policy=fixed(length), drafter=drafter, max_tokens=60)
        assert (done.tokens, done.text, done.reason) == (plain.tokens, plain.text, "stop")
        assert holds_the_reply(ending, ENDING, done.tokens)
        speculation = done.report["speculation"]
        assert speculation["accepted"] == speculation["drafted"], "candidates behind the end were counted as refused"
    again = ending.run("Tell me about 35", max_tokens=60)
    with Reference(ending.model.path) as reference:
        assert check_greedy(reference, ending.encode("Tell me about 35"), again, max_tokens=60) == 0


@pytest.mark.parametrize("length", BLOCKS)
def test_an_end_token_the_target_does_not_want_is_refused(length: int, loop: Loop, plain: list[int]) -> None:
    drafter = Script(lambda tokens, limit: [tiny.IM_END] * limit)
    done = loop.run(CLEAR, policy=fixed(length), drafter=drafter, max_tokens=20)
    assert (done.tokens, done.reason, done.accepted) == (plain[:20], "length", 0)


@pytest.mark.parametrize("policy", ["fixed:3", "fixed:8", "lookup", "auto"])
def test_the_context_fills_up_in_the_middle_of_a_draft(
    policy: str, target: Path, drafts: dict[str, Path], reference: Reference
) -> None:
    with Loop(target, drafts["good"], n_ctx=256) as loop:
        for prompt in (CLEAR * 15, CLEAR * 15 + "!", CLEAR * 15 + "!?"):
            done = loop.run(prompt, policy=POLICIES[policy](), max_tokens=1000)
            assert done.reason == "context"
            assert len(loop.session.tokens) == 256
            assert check_greedy(reference, loop.encode(prompt), done, n_ctx=256, max_tokens=1000) <= 1
        again = loop.run(CLEAR, policy=POLICIES[policy](), max_tokens=40)
        assert check_greedy(reference, loop.encode(CLEAR), again, max_tokens=40) == 0


@pytest.mark.parametrize("length", BLOCKS)
def test_characters_of_several_bytes_survive_every_cut(length: int, loop: Loop, reference: Reference) -> None:
    request: dict[str, Any] = {
        "sampling": SamplingParams(temperature=0, grammar='root ::= ("é" | "北" | "👩‍👧" | "ж")*', frequency_penalty=0.5),
        "max_tokens": 41,
    }
    plain = loop.run(CLEAR, **request)
    assert check_greedy(reference, loop.encode(CLEAR), plain, **request) == 0
    assert {"北", "ж", "👩"} <= set(plain.text)
    for limit in (41, 39, 38, 37):
        request["max_tokens"] = limit
        done = loop.run(CLEAR, policy=fixed(length), drafter=knows(loop.encode(CLEAR), plain.tokens), **request)
        assert done.tokens == plain.tokens[:limit]
        assert done.text == bytes(done.tokens).decode(errors="replace")


# ---- what the loop leaves behind


class Fault(Exception):
    """Something went wrong that the loop does not know about."""


def test_a_drafter_that_fails_leaves_the_next_reply_right(loop: Loop, plain: list[int]) -> None:
    def fail(tokens: list[int], limit: int) -> list[int]:
        if len(tokens) > 30:
            raise Fault
        return plain[5 : 5 + limit]

    with pytest.raises(Fault):
        loop.run(CLEAR, policy=fixed(4), drafter=Script(fail))
    assert loop.run(CLEAR, policy=fixed(4), max_tokens=60).tokens == plain


def test_a_decode_that_llama_cpp_refuses_leaves_the_next_reply_right(loop: Loop, plain: list[int]) -> None:
    for candidates in ([plain[20], 10**6], [10**6]):
        with pytest.raises(DecodeFailed, match="failed a decode of"):
            loop.run(CLEAR, policy=fixed(4), drafter=Script(lambda tokens, limit, c=candidates: c if len(tokens) > 30 else []))
        assert loop.run(CLEAR, max_tokens=60).tokens == plain


def test_closing_early_at_every_event_leaves_the_next_reply_right(
    target: Path, drafts: dict[str, Path], plain: list[int]
) -> None:
    with Loop(target, drafts["good"], batch=32) as loop:
        for events in range(1, 24, 2):
            reply = loop.start(CLEAR * 4, policy=fixed(3), max_tokens=60)
            running = loop.decoder.run(reply)
            for _ in range(events):
                next(running)
            running.close()
            loop.end(reply)
            assert loop.run(CLEAR, policy=fixed(3), max_tokens=30).tokens == plain[:30]


@pytest.mark.parametrize("kind", ["target", "sliding", "hybrid"])
def test_a_cancel_at_any_moment_leaves_the_next_reply_right(kind: str, request: pytest.FixtureRequest) -> None:
    """The flag goes up inside a decode, at 25 places from the first batch of the prompt to the last token: while
    reading, drafting and checking."""
    path, flag = request.getfixturevalue(kind), PullAt()
    draft = None if kind == "hybrid" else tiny.noisy_copy(path, 0.05)
    how: dict[str, Any] = {"policy": fixed(3), "max_tokens": 30}
    with Loop(path, draft, batch=64, cancel=flag) as loop, Reference(path) as reference:
        if draft is None:
            how["drafter"] = Script(lambda tokens, limit: tokens[20 : 20 + limit])
        expected = loop.run(CLEAR * 8, **how).tokens
        drop_caches(loop)
        flag.pull_at(0)
        loop.run(CLEAR * 8, **how)
        phases = set()
        for at in range(1, flag.polls, flag.polls // 25):
            drop_caches(loop)
            flag.pull_at(at)
            done = loop.run(CLEAR * 8, **how)
            assert done.reason == "cancelled"
            assert done.tokens == expected[: len(done.tokens)]
            assert loop.session.tokens == [*loop.encode(CLEAR * 8), *done.tokens]
            phases.add(len(done.tokens))
            flag.pull_at(0)
            prompt = [*loop.session.tokens, ord("?")]
            assert check_greedy(reference, prompt, loop.run(prompt, **how), max_tokens=30) <= 1
        assert {0, 1} < phases


def drop_caches(loop: Loop) -> None:
    loop.session.forget()
    if loop.draft is not None:
        loop.draft.forget()


def test_a_drafter_with_nothing_to_say_is_plain_decoding(loop: Loop, plain: list[int]) -> None:
    """As a draft model whose vocabulary lacks the newest token."""
    for policy in (fixed(4), everyone()):
        done = loop.run(CLEAR, policy=policy, drafter=Script(lambda tokens, limit: []), max_tokens=60)
        assert done.tokens == plain
        assert done.report["speculation"]["by_drafter"]["model"]["drafted"] == 0
