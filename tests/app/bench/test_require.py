from __future__ import annotations

import pytest

from app.bench.require import Rule, judge, parse_rule
from app.errors import AppError
from tests.app.bench.conftest import MakeRow

CONFIGS, CATEGORIES = ("plain", "auto", "fixed:4", "auto@draft=b"), ("code", "prose")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("auto>=0.97*plain in every category", Rule("", "auto", "plain", 0.97, False, "every category")),
        ("auto >= 0.97 * plain  in every  category", Rule("", "auto", "plain", 0.97, False, "every category")),
        ("auto>plain", Rule("", "auto", "plain", 1.0, True, "all")),
        ("auto>=plain overall by interval", Rule("", "auto", "plain", 1.0, False, "all", True)),
        ("auto@draft=b>=1.1*auto in code", Rule("", "auto@draft=b", "auto", 1.1, False, "code")),
        ("auto>=fixed:4 in every prompt by interval", Rule("", "auto", "fixed:4", 1.0, False, "every prompt", True)),
    ],
)
def test_rules(text: str, rule: Rule) -> None:
    found = parse_rule(text, CONFIGS, CATEGORIES)
    assert (found.left, found.right, found.factor, found.strict, found.place, found.by_interval) == (
        rule.left, rule.right, rule.factor, rule.strict, rule.place, rule.by_interval
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("auto is faster", "a rule looks like"),
        ("auto<=plain", "a rule looks like"),
        ("auto>=fast*plain", "'fast' is not a positive number"),
        ("auto>=0*plain", "'0' is not a positive number"),
        ("draft>=plain", "nothing called 'draft' is measured; there is plain, auto"),
        ("auto>=auto", "auto is compared with itself"),
        ("auto>=plain in poems", "'in poems' is no place"),
        ("auto>=plain in every language", "is no place; say `in every category`"),
    ],
)
def test_what_is_wrong_with_a_rule_is_told(text: str, complaint: str) -> None:
    with pytest.raises(AppError, match="--require") as refusal:
        parse_rule(text, CONFIGS, CATEGORIES)
    assert complaint in str(refusal.value)


def test_one_category_that_falls_short_fails_alone(row: MakeRow) -> None:
    rows = [
        row(config, speed, category=category, question_id=category)
        for category, config, speed in (("code", "plain", 10), ("code", "auto", 20), ("prose", "plain", 10), ("prose", "auto", 9))
    ]
    rule = parse_rule("auto>=0.97*plain in every category", CONFIGS, CATEGORIES)
    assert [(v.place, v.holds) for v in judge(rule, rows, CATEGORIES)] == [("code", True), ("prose", False)]
    every = parse_rule("auto>=0.97*plain in every prompt", CONFIGS, CATEGORIES)
    assert [(v.place, v.holds) for v in judge(every, rows, CATEGORIES)] == [("code", True), ("prose", False)]
    assert [v.holds for v in judge(parse_rule("auto>=0.97*plain in code", CONFIGS, CATEGORIES), rows, CATEGORIES)] == [True]
    assert [v.holds for v in judge(parse_rule("auto>=1.3*plain", CONFIGS, CATEGORIES), rows, CATEGORIES)] == [True]


def test_what_was_not_measured_does_not_hold(row: MakeRow) -> None:
    rule = parse_rule("auto>=0.1*plain in every category", CONFIGS, CATEGORIES)
    verdicts = judge(rule, [row("plain", 10.0), row("auto", 10.0)], CATEGORIES)
    assert [(v.place, v.holds) for v in verdicts] == [("code", True), ("prose", False)]
    assert verdicts[1].words == "not measured"


def test_the_interval_decides_where_that_is_wanted(row: MakeRow) -> None:
    rows = [row("plain", 10.0, repeat=i) for i in range(4)]
    rows += [row("auto", 10.0 + i, repeat=i) for i in range(4)]
    median = judge(parse_rule("auto>=1.1*plain", CONFIGS, CATEGORIES), rows, CATEGORIES)[0]
    assert median.holds
    assert "within the noise" in median.words
    assert not judge(parse_rule("auto>=1.1*plain by interval", CONFIGS, CATEGORIES), rows, CATEGORIES)[0].holds
    assert judge(parse_rule("auto>=0.8*plain by interval", CONFIGS, CATEGORIES), rows, CATEGORIES)[0].holds


def test_a_single_repeat_has_no_interval_to_decide_by(row: MakeRow) -> None:
    verdict = judge(parse_rule("auto>=0.5*plain by interval", CONFIGS, CATEGORIES), [row("plain", 10.0), row("auto", 10.0)], CATEGORIES)[0]
    assert not verdict.holds
    assert "one repeat has no interval" in verdict.words


def test_exactly_equal_is_enough_unless_more_is_asked_for(row: MakeRow) -> None:
    rows = [row("plain", 10.0), row("auto", 10.0)]
    assert judge(parse_rule("auto>=plain", CONFIGS, CATEGORIES), rows, CATEGORIES)[0].holds
    assert not judge(parse_rule("auto>plain", CONFIGS, CATEGORIES), rows, CATEGORIES)[0].holds
