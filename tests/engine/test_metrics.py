"""The report's figures: shaped as `ask --json` promises, consistent with each other and with the rounds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import BadRequest
from engine.metrics import Metrics, Trace, peak_rss_bytes
from engine.values import Origin, Round
from tests import tiny_models as tiny
from tests.engine.helpers import Done, Loop, fixed, knows


def a_round(
    candidates: int = 0, accepted: int = 0, emitted: int | None = None, judged: int | None = None,
    origin: Origin = "model", parked: bool = False,
) -> Round:
    return Round(
        origin=origin if candidates else "target", candidates=tuple(range(candidates)), confidence=(0.5,) * candidates,
        judged=candidates if judged is None else judged, accepted=accepted,
        emitted=tuple(range(accepted + 1 if emitted is None else emitted)), context=10, match_length=0, parked=parked,
        draft_seconds=0.001, target_seconds=0.010, sampling_seconds=0.002, total_seconds=0.014, expected_seconds=None,
        reason="because",
    )


def report(*rounds: Round) -> dict[str, Any]:
    metrics = Metrics(prompt_tokens=100, cached_tokens=60)
    metrics.first_token()
    for i, round_ in enumerate(rounds):
        metrics.add(round_, decoding=i > 0)
        if i:
            metrics.decode_seconds += round_.total_seconds + 0.001
            metrics.native_seconds += round_.target_seconds
    return metrics.report("auto", "a sentence")


def test_the_report_has_the_promised_shape() -> None:
    full = report(a_round(), a_round(3, 2))
    assert {name: set(part) for name, part in full.items()} == {
        "usage": {"prompt_tokens", "cached_tokens", "completion_tokens"},
        "timings": {"ttft_ms", "prefill_tps", "decode_tps", "decode_seconds", "outside_llama_share", "itl_ms"},
        "speculation": {
            "mode", "state", "rounds", "drafted", "accepted", "acceptance_rate", "tokens_per_round",
            "drafted_by_position", "accepted_by_position", "by_drafter", "parked_rounds", "lengths", "time_ms",
        },
        "memory": {"peak_rss_bytes"},
    }
    assert set(full["timings"]["itl_ms"]) == {"p50", "p95", "p99"}
    assert set(full["speculation"]["time_ms"]) == {"draft", "target", "sampling", "other"}
    assert set(full["speculation"]["by_drafter"]) == {"model", "ngram"}


def test_positions_count_what_was_drafted_and_kept_there() -> None:
    speculation = report(
        a_round(), a_round(3, 2), a_round(3, 0), a_round(1, 1), a_round(), a_round(4, 4, origin="ngram")
    )["speculation"]
    assert speculation["drafted_by_position"] == [4, 3, 3, 1]
    assert speculation["accepted_by_position"] == [3, 2, 1, 1]
    assert (speculation["drafted"], speculation["accepted"]) == (11, 7)
    assert speculation["acceptance_rate"] == pytest.approx(7 / 11, abs=1e-4)
    assert speculation["lengths"] == {"0": 1, "1": 1, "3": 2, "4": 1}
    assert speculation["by_drafter"]["model"] == {"rounds": 3, "drafted": 7, "accepted": 3, "acceptance_rate": 0.4286}
    assert speculation["by_drafter"]["ngram"]["acceptance_rate"] == 1.0
    assert speculation["tokens_per_round"] == pytest.approx((3 + 1 + 2 + 1 + 5) / 5)


def test_positions_where_nothing_was_kept_are_zeros() -> None:
    speculation = report(a_round(), a_round(3, 0))["speculation"]
    assert speculation["drafted_by_position"] == [1, 1, 1]
    assert speculation["accepted_by_position"] == [0, 0, 0]
    assert speculation["acceptance_rate"] == 0.0


def test_candidates_behind_the_end_of_the_reply_count_neither_way() -> None:
    """The second of five was the end token, and all five were the target's choice."""
    speculation = report(a_round(), a_round(5, 5, emitted=1, judged=2))["speculation"]
    assert speculation["drafted_by_position"] == speculation["accepted_by_position"] == [1, 1]


def test_without_drafts_there_is_no_acceptance_rate_and_without_rounds_no_rates() -> None:
    plain = report(a_round(), a_round(), a_round())
    assert plain["speculation"]["acceptance_rate"] is None
    assert plain["speculation"]["drafted_by_position"] == []
    assert plain["speculation"]["tokens_per_round"] == 1.0
    only_first = report(a_round())
    assert only_first["usage"]["completion_tokens"] == 1
    assert only_first["timings"]["itl_ms"] == {"p50": None, "p95": None, "p99": None}
    assert only_first["timings"]["decode_tps"] == 0.0
    cancelled = Metrics(10, 0).report("plain", "plain")
    assert cancelled["timings"]["ttft_ms"] is None
    json.dumps([plain, only_first, cancelled], allow_nan=False)


def test_the_token_that_ends_the_turn_took_its_time_but_is_no_part_of_the_reply() -> None:
    full = report(a_round(), a_round(), replace(a_round(emitted=0), ended=True))
    assert full["usage"]["completion_tokens"] == 2
    assert full["speculation"]["tokens_per_round"] == 1.0
    assert full["timings"]["decode_tps"] == pytest.approx(1 / 0.015, rel=1e-3)


def test_times_add_up_and_rates_follow_from_them() -> None:
    full = report(a_round(), *[a_round(3, 1) for _ in range(10)])
    times = full["speculation"]["time_ms"]
    assert times["draft"] == pytest.approx(10)
    assert times["target"] == pytest.approx(100)
    assert times["sampling"] == pytest.approx(20)
    assert sum(times.values()) == pytest.approx(1000 * full["timings"]["decode_seconds"])
    assert full["timings"]["decode_tps"] == pytest.approx(20 / 0.15, rel=1e-3)
    assert full["timings"]["outside_llama_share"] == pytest.approx(1 - 10 / 15, abs=1e-3)
    assert full["usage"] == {"prompt_tokens": 100, "cached_tokens": 60, "completion_tokens": 21}


def test_a_block_arrives_at_once() -> None:
    """Of a block's tokens the first waited for the round, the others not at all."""
    gaps = report(a_round(), *[a_round(3, 3) for _ in range(10)])["timings"]["itl_ms"]
    assert gaps["p50"] == 0
    assert gaps["p95"] == gaps["p99"] == pytest.approx(14)


def test_memory_is_plausible() -> None:
    peak = peak_rss_bytes()
    assert peak is None or 10 << 20 < peak < 1 << 40


# ---- against rounds that happened


@pytest.fixture(scope="module")
def loop(target: Path, draft: Path) -> Iterator[Loop]:
    with Loop(target, draft) as loop:
        yield loop


def agrees(done: Done) -> None:
    """The report says of the rounds what their own records say; the first round is the prompt's."""
    rounds, speculation = done.rounds[1:], done.report["speculation"]
    assert speculation["rounds"] == len(rounds)
    for i, (drafted, accepted) in enumerate(
        zip(speculation["drafted_by_position"], speculation["accepted_by_position"], strict=True)
    ):
        assert drafted == sum(r.judged > i for r in rounds)
        assert accepted == sum(min(r.accepted, r.judged) > i for r in rounds)
    assert done.report["usage"]["completion_tokens"] == len(done.tokens) == sum(len(r.emitted) for r in done.rounds)
    assert all(r.judged == len(r.candidates) for r in rounds[:-1])
    for r in done.rounds:
        assert r.total_seconds >= r.draft_seconds + r.target_seconds + r.sampling_seconds - 1e-6
    timings, times = done.report["timings"], speculation["time_ms"]
    assert sum(times.values()) == pytest.approx(1000 * timings["decode_seconds"], abs=0.2)
    assert 0 <= timings["outside_llama_share"] <= 1


@pytest.mark.parametrize("policy", [fixed(3), fixed(8), fixed(5, "ngram")], ids=["3", "8", "lookup"])
def test_the_report_agrees_with_the_rounds(policy: Any, loop: Loop) -> None:
    agrees(loop.run(policy=policy, max_tokens=80))


def test_an_accepted_end_token_counts_and_what_is_behind_it_does_not(models_dir: Path) -> None:
    with Loop(tiny.tiny_target(models_dir, "ending", ending=1.5)) as loop:
        prompt = loop.encode("Tell me about 36")
        plain = loop.run(prompt, max_tokens=60).tokens
        right = knows(prompt, [*plain, tiny.IM_END, *b"and so on and so on"])
        done = loop.run(prompt, policy=fixed(8), drafter=right, max_tokens=60)
        agrees(done)
        assert done.rounds[-1].judged < len(done.rounds[-1].candidates)
        assert done.report["speculation"]["acceptance_rate"] == 1.0
        wrong = knows(prompt, [*plain, *b"and so on and so on"])
        done = loop.run(prompt, policy=fixed(8), drafter=wrong, max_tokens=60)
        agrees(done)
        assert done.report["speculation"]["acceptance_rate"] < 1.0, "what the target's end token refused was refused"


# ---- the trace file


def test_a_trace_is_appended_to_and_ends_quietly_when_the_disk_is_full(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    for _ in range(2):
        trace = Trace(path)
        trace.write(1, a_round(2, 1), ["naïve", "\n"], "a sentence")
        trace.close()
        trace.close()
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["text"] for line in lines] == [["naïve", "\n"]] * 2
    assert lines[0]["accepted"] == 1
    assert lines[0]["ms"] == {"draft": 1.0, "target": 10.0, "sampling": 2.0, "total": 14.0}
    full = Path("/dev/full")
    if full.exists():
        trace = Trace(full)
        for _ in range(2000):
            trace.write(1, a_round(2, 1), ["x" * 100], "a sentence")
        trace.close()


def test_a_trace_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="trace cannot be written"):
        Trace(tmp_path)
