from __future__ import annotations

from dataclasses import replace

import pytest

from app.bench.statistics import Measurement, by_category, by_prompt, quantile, summarise

ROW = Measurement(
    question_id="1", category="code", turn=0, mode="plain", repeat=0, prompt_tokens=10, cached_tokens=0, completion_tokens=100,
    finish_reason="stop", tokens_per_second=20.0, ttft_ms=100.0, prefill_tps=100.0, decode_seconds=5.0,
    outside_llama_share=0.01, rounds=100, drafted=0, accepted=0, tokens_per_round=1.0, parked_rounds=0, state="plain",
    text_sha256="a",
)


def row(mode: str, speed: float | None, **changes: object) -> Measurement:
    return replace(ROW, mode=mode, tokens_per_second=speed, **changes)  # type: ignore[arg-type]


def test_ratios_are_paired_by_prompt_turn_and_repeat() -> None:
    """The machine slows down fourfold half way: unpaired medians would say anything, the pairs say 1.5."""
    rows = [
        row(mode, speed * factor, repeat=repeat)
        for repeat, factor in enumerate((4, 4, 1, 1))
        for mode, speed in (("plain", 10.0), ("auto", 15.0))
    ]
    ratio = by_category(rows)["code"]["auto"]["ratio_to_plain"]
    assert ratio == {"median": 1.5, "low": 1.5, "high": 1.5, "pairs": 4}


def test_spread_is_the_10th_and_90th_percentile() -> None:
    rows = [row("plain", 10.0, repeat=i) for i in range(11)] + [row("auto", 10.0 + i, repeat=i) for i in range(11)]
    ratio = by_category(rows)["code"]["auto"]["ratio_to_plain"]
    assert (ratio["low"], ratio["median"], ratio["high"]) == (1.1, 1.5, 1.9)


def test_a_reply_whose_twin_is_missing_or_too_short_has_no_ratio() -> None:
    rows = [row("plain", None), row("auto", 12.0), row("auto", 13.0, repeat=1)]
    assert by_category(rows)["code"]["auto"]["ratio_to_plain"] == {"median": None, "low": None, "high": None, "pairs": 0}


def test_rates_are_pooled_over_tokens_not_averaged_over_replies() -> None:
    rows = [
        row("auto", 10.0, drafted=90, accepted=90, rounds=10, tokens_per_round=10.0),
        row("auto", 10.0, drafted=10, accepted=0, rounds=90, tokens_per_round=1.0, repeat=1),
    ]
    facts = summarise(rows, [])
    assert facts["acceptance_rate"] == 0.9
    assert facts["tokens_per_round"] == pytest.approx(1.9)


def test_time_outside_llama_is_weighted_by_time() -> None:
    rows = [
        row("auto", 10.0, outside_llama_share=0.10, decode_seconds=1.0),
        row("auto", 10.0, outside_llama_share=0.02, decode_seconds=3.0),
        row("auto", None, outside_llama_share=None, decode_seconds=0.0),
    ]
    assert summarise(rows, [])["outside_llama_share"] == pytest.approx(0.04)


def test_nothing_drafted_is_absent_not_zero() -> None:
    assert summarise([row("plain", 10.0)], [])["acceptance_rate"] is None


def test_all_is_a_category_of_its_own_and_covers_every_prompt() -> None:
    rows = [
        row(mode, speed, question_id=question, category=category)
        for question, category, mode, speed in (
            ("1", "code", "plain", 10.0), ("1", "code", "auto", 20.0),
            ("2", "prose", "plain", 10.0), ("2", "prose", "auto", 10.0),
        )
    ]
    found = by_category(rows)
    assert list(found) == ["code", "prose", "all"]
    assert found["all"]["auto"]["ratio_to_plain"]["median"] == 1.5
    assert found["all"]["auto"]["replies"] == 2
    assert by_prompt(rows)["1"]["auto"]["ratio_to_plain"]["median"] == 2.0


def test_texts_are_compared_with_plains() -> None:
    rows = [row("plain", 10.0), row("plain", 10.0, repeat=1), row("auto", 10.0), row("auto", 10.0, repeat=1, text_sha256="b")]
    assert by_category(rows)["code"]["auto"]["same_text_as_plain"] == 0.5


@pytest.mark.parametrize(
    ("values", "share", "expected"), [([], 0.5, None), ([3.0], 0.9, 3.0), ([2.0, 1.0], 0.5, 1.5), ([1.0, 2.0, 3.0], 1.0, 3.0)]
)
def test_quantile(values: list[float], share: float, expected: float | None) -> None:
    assert quantile(values, share) == expected
