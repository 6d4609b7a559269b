"""Reading a text again under the target: what it finds, and what it takes for rounding."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine import (
    ChatMessage,
    Engine,
    EngineProcess,
    Finished,
    GenerationRequest,
    LoadConfig,
    SamplingParams,
    Written,
)
from engine.errors import DecodeAborted
from engine.exactness import END, Rereader, read, rounding
from engine.sampling import Distribution
from engine.shadow import check_reply, read_drawn
from tests.engine.helpers import GREEDY, Reference
from tests.tiny_models import IM_END

PROMPT = "def main():\n    print('hello')\n"


@pytest.fixture(scope="module")
def engine(target: Path, draft: Path) -> Iterator[Engine]:
    with Engine(LoadConfig(target=target, draft=draft, context=512, threads=1)) as engine:
        yield engine


def reply(engine: Engine, **how: object) -> tuple[GenerationRequest, Finished, Written]:
    request = GenerationRequest(**{  # type: ignore[arg-type]
        "prompt": PROMPT, "sampling": GREEDY, "max_tokens": 40, "mode": "fixed:4", "seed": 1, **how,
    })
    finished = [event for event in engine.generate(request) if isinstance(event, Finished)][-1]
    return request, finished, finished.written


def test_a_reply_comes_with_its_tokens(engine: Engine) -> None:
    _, finished, written = reply(engine)
    assert bytes(written.prompt).decode() == PROMPT
    assert b"".join(map(engine.target.piece, written.reply)).decode(errors="replace") == finished.text
    assert len(written.reply) == 40
    assert not written.ended


def test_a_stop_string_is_no_end_of_the_model_s_own(engine: Engine) -> None:
    _, whole, _ = reply(engine)
    _, finished, written = reply(engine, stop=(whole.text[10:14],))
    assert (finished.reason, written.ended) == ("stop", False)
    assert len(written.reply) > len(finished.text)  # with the string's own tokens


def test_single_rows_are_what_a_reference_says(engine: Engine, target: Path) -> None:
    _, _, written = reply(engine, mode="plain")
    with Rereader(engine, 512) as reader, Reference(target) as reference:
        places = read(reader, written.prompt, written.reply, GREEDY)
        assert [place.token for place in places] == list(written.reply)
        assert [place.gap for place in places] == [0.0] * 40
        logits = reference.logits([*written.prompt, *written.reply[:7]]).astype(np.float64)
        p = np.exp(logits - logits.max())
        assert math.isclose(places[7].log_probability, math.log(p[written.reply[7]] / p.sum()), abs_tol=1e-2)
        assert set(places[7].top_ids) == set(np.argsort(logits)[-8:])


def test_another_token_is_found_with_its_gap(engine: Engine, target: Path) -> None:
    _, _, written = reply(engine, mode="plain")
    tokens = list(written.reply)
    tokens[5] = next(t for t in range(97, 123) if t != tokens[5])
    with Rereader(engine, 512) as reader, Reference(target) as reference:
        places = read(reader, written.prompt, tokens[:6], GREEDY)
        logits = reference.logits([*written.prompt, *tokens[:5]])
    assert [place.gap > 0 for place in places] == [False] * 5 + [True]
    assert places[5].best == written.reply[5]
    assert math.isclose(places[5].gap, float(logits.max() - logits[tokens[5]]), abs_tol=0.05)


def test_penalties_and_grammars_are_part_of_the_scores(engine: Engine) -> None:
    for sampling in (
        replace(GREEDY, repeat_penalty=1.3, presence_penalty=0.5), replace(GREEDY, grammar="root ::= [a-f ]*"),
        replace(GREEDY, logit_bias=((101, 3.0), (32, -2.0))),
    ):
        request, finished, written = reply(engine, sampling=sampling)
        with Rereader(engine, 512) as reader:
            assert max(place.gap for place in read(reader, written.prompt, written.reply, sampling)) < 0.05
            assert max(place.gap for place in read(reader, written.prompt, written.reply, GREEDY)) > 0.05
        assert check_reply(engine, request, finished.written).verdict in ("exact", "near ties")


def test_a_token_that_the_settings_forbid_has_an_infinite_gap(engine: Engine) -> None:
    _, _, written = reply(engine)
    forbidding = replace(GREEDY, logit_bias=((written.reply[3], -math.inf),))
    with Rereader(engine, 512) as reader:
        places = read(reader, written.prompt, written.reply, forbidding)
    assert len(places) <= 4
    assert places[-1].gap == math.inf


def test_an_end_is_a_place_of_its_own(engine: Engine) -> None:
    ending = replace(GREEDY, logit_bias=((IM_END, 8.0),))
    _, _, written = reply(engine, sampling=ending, max_tokens=200)
    assert written.ended
    with Rereader(engine, 512) as reader:
        places = read(reader, written.prompt, written.reply, ending, ended=True)
        assert places[-1].token == END
        assert places[-1].gap < 0.05
        assert read(reader, written.prompt, written.reply[:-1], ending, ended=True)[-1].gap > 0


def test_rounding_is_measured_between_readings(engine: Engine) -> None:
    _, _, written = reply(engine)
    with Rereader(engine, 512) as reader:
        singly, blocks = (read(reader, written.prompt, written.reply, GREEDY, block=block) for block in (1, 8))
    same, measured = rounding([(singly, singly)]), rounding([(singly, blocks)])
    assert (same.places, same.largest, same.spread, same.bound) == (40, 0.0, 0.0, 0.0)
    assert 0 < measured.spread < measured.largest < 0.1
    assert same.flip_chance(singly[0]) == 0
    near = replace(singly[0], top_scores=np.array([0.0, 1.0, 1.0 + measured.spread]), top_ids=np.arange(3))
    assert math.isclose(measured.flip_chance(near), 0.1587, abs_tol=1e-3)


def test_a_beginning_is_asked_about_without_reading_the_prompt_again(engine: Engine, target: Path) -> None:
    prompt = list(PROMPT.encode())
    with Rereader(engine, 512) as reader, Reference(target) as reference:
        for beginning in ([], [97], [98, 99], [97, 100]):
            assert np.abs(reader.after(prompt, beginning) - reference.logits([*prompt, *beginning])).max() < 0.05


# ---- the shadow of a reply


def test_a_greedy_reply_is_exact_in_the_shadow(engine: Engine) -> None:
    request, finished, _ = reply(engine)
    result = check_reply(engine, request, finished.written)
    assert result.verdict in ("exact", "near ties")
    assert result.tokens == 40
    assert result.log_likelihood is not None
    assert result.log_likelihood < 0


def test_a_reply_that_is_not_the_target_s_is_a_drift(engine: Engine) -> None:
    request, finished, _ = reply(engine, sampling=replace(GREEDY, logit_bias=((101, 2.0),)))
    result = check_reply(engine, replace(request, sampling=GREEDY), finished.written)
    assert result.verdict == "drift"
    assert result.departures > 0
    assert result.bound is not None
    assert result.largest_gap > result.bound


def test_drawn_replies_look_drawn(engine: Engine) -> None:
    for seed in range(5):
        request, finished, _ = reply(engine, sampling=SamplingParams(temperature=0.9), max_tokens=120, seed=seed)
        result = check_reply(engine, request, finished.written)
        assert (result.verdict, result.forbidden) == ("exact", 0)


@pytest.mark.parametrize("temperature", [0.2, 3.0])
def test_replies_drawn_at_another_temperature_do_not(engine: Engine, temperature: float) -> None:
    claimed = SamplingParams(temperature=1.0, top_k=0, top_p=1, min_p=0)
    request, finished, _ = reply(engine, sampling=replace(claimed, temperature=temperature), max_tokens=200)
    result = check_reply(engine, replace(request, sampling=claimed), finished.written)
    assert result.verdict == "drift"
    assert result.e_value is not None
    assert result.e_value > 1e4


def test_a_token_that_no_filter_lets_through_is_a_drift(engine: Engine) -> None:
    free = SamplingParams(temperature=2.0, top_k=0, top_p=1, min_p=0)
    request, finished, _ = reply(engine, sampling=free)
    result = check_reply(engine, replace(request, sampling=replace(free, top_k=1, top_p=0.5)), finished.written)
    assert (result.verdict, result.forbidden) == ("drift", 1)


def test_a_reply_that_others_followed_is_checked_as_well(engine: Engine) -> None:
    request, finished, _ = reply(engine)
    reply(engine, prompt="other")
    result = check_reply(engine, request, finished.written)
    assert result.verdict in ("exact", "near ties")
    assert result.tokens == 40


def test_cancelling_stops_the_second_reading(engine: Engine) -> None:
    request, finished, written = reply(engine)
    engine.cancel()
    try:
        assert check_reply(engine, request, finished.written).reason == "stopped"
        with Rereader(engine, 512) as reader, pytest.raises(DecodeAborted):
            read_drawn(reader, written, SamplingParams())
    finally:
        engine._cancel.clear()


def test_the_conversation_goes_on_from_the_cache_after_a_check(engine: Engine) -> None:
    chat = (ChatMessage("user", "Name three rivers."),)
    request, finished, _ = reply(engine, prompt=None, messages=chat)
    check_reply(engine, request, finished.written)
    longer = (*chat, ChatMessage("assistant", finished.text), ChatMessage("user", "And lakes?"))
    _, after, _ = reply(engine, prompt=None, messages=longer)
    assert after.report["usage"]["cached_tokens"] >= finished.report["usage"]["prompt_tokens"]


def test_evidence_has_mean_one_under_the_law_and_grows_under_another() -> None:
    from engine.evidence import Evidence, detector

    rng = np.random.default_rng(0)
    law = Distribution(np.arange(4, dtype=np.int32), np.array([0.5, 0.3, 0.15, 0.05]))

    def value(probs: list[float]) -> float:
        evidence = Evidence()
        for token in rng.choice(4, size=50, p=probs):
            evidence.add(law, law.prob(int(token)))
        return evidence.value()

    right = [value([0.5, 0.3, 0.15, 0.05]) for _ in range(2000)]
    assert np.mean(np.array(right) >= 100) <= 0.01
    assert np.median([value([0.8, 0.15, 0.05, 0.0]) for _ in range(50)]) > 1e3
    assert Evidence().value() == pytest.approx(1.0)
    assert detector(0.0, 1.0) == 1.0
    assert detector(3.0, 0.5) == 2.0


def test_an_engine_in_a_process_of_its_own_checks_too(target: Path, draft: Path) -> None:
    with EngineProcess(LoadConfig(target=target, draft=draft, context=512, threads=1)) as process:
        request = GenerationRequest(prompt=PROMPT, sampling=GREEDY, max_tokens=40, mode="fixed:4")
        process.cancel()  # of something earlier
        finished = [event for event in process.generate(request) if isinstance(event, Finished)][-1]
        result = process.shadow_check(request, finished)
        assert result.verdict in ("exact", "near ties")
        assert result.tokens == 40
        assert process.count_tokens("abc") == 3
