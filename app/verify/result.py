"""What the findings of `verify` come to: one verdict, a table and JSON. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from app.sanitize import sanitize
from app.verify.distribution import FEWEST
from app.verify.identity import PLAIN, Compared, Departure, faults, flip_p_value
from app.verify.session import DrawnPair, Findings
from app.verify.statistics import Interval, difference, holm

if TYPE_CHECKING:
    from rich.table import Table

MOST_SHOWN = 30
"""Places in the table; the JSON has them all."""


@dataclass(frozen=True, slots=True)
class Test:
    """One of the tests that share the false-alarm rate."""

    name: str
    p_value: float
    rejected: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict, and what it rests on."""

    passed: bool
    verdict: str
    bound: float
    faults: list[tuple[Compared, Departure]]
    tests: list[Test]
    greedy_difference: Interval | None
    drawn_difference: Interval | None


def judge(findings: Findings, false_alarm: float) -> Judgement:
    """Passed if nothing was found and something was put to the test."""
    bound = findings.rounding.bound
    wrong = faults(findings.compared, bound)
    tests = list(_tests(findings))
    tests = [
        Test(test.name, test.p_value, rejected)
        for test, rejected in zip(tests, holm([test.p_value for test in tests], false_alarm), strict=True)
    ]
    failed = [test for test in tests if test.rejected]
    forbidden = [pair.prompt for pair in findings.drawn if pair.ours.forbidden]
    drafted = sum(one.drafted for one in findings.compared) + sum(one.drafted for one in findings.contexts)
    passed = not wrong and not failed and not forbidden and drafted > 0
    if passed:
        verdict = f"verified: {_what_was_seen(findings, bound)}; {_what_was_tested(tests, false_alarm)}"
    elif not (wrong or failed or forbidden):
        verdict = "not verified: nothing was drafted, so nothing was put to the test"
    else:
        reasons = [_fault_in_words(wrong, bound)] if wrong else []
        reasons += [f"{test.name}: p = {_p(test.p_value)}" for test in failed]
        reasons += [f"the reply to {name} has a token that the target rules out" for name in forbidden]
        verdict = f"NOT exact: {'; '.join(reasons)}"
    return Judgement(passed, verdict, bound, wrong, tests, _greedy_difference(findings.compared), _drawn_difference(findings.drawn))


def _tests(findings: Findings) -> Iterator[Test]:
    modes = dict.fromkeys(one.mode for one in findings.compared)
    for mode in modes:
        rows = [one for one in findings.compared if one.mode == mode]
        yield Test(f"more near ties went the other way than rounding explains ({mode})", flip_p_value(rows))
    if findings.drawn:
        evidence = math.prod(max(pair.ours.e_value, 1e-300) for pair in findings.drawn)
        yield Test("drawn replies do not look drawn from the target's distribution", min(1.0, 1 / evidence) if evidence else 1.0)
    for context in findings.contexts:
        if context.test is not None:
            yield Test(f"the first tokens of {context.prompt} do not follow the target's law", context.test.p_value)


def _what_was_seen(findings: Findings, bound: float) -> str:
    ours = [one for one in findings.compared if one.mode != PLAIN]
    differing = sum(one.first_difference is not None for one in ours)
    ties = sum(len(one.departures) for one in findings.compared)
    largest = max((place.gap for one in findings.compared for place in one.departures), default=0.0)
    same = f"{len(ours) - differing} of {len(ours)} replies at temperature 0 are plain decoding's, token by token"
    if not ties:
        return same
    return f"{same}, and all {ties} places that differ from the target's first choice are near ties (at most {largest:.2f} nats; bound {bound:.2f})"


def _what_was_tested(tests: Sequence[Test], false_alarm: float) -> str:
    if not tests:
        return "no distribution was tested"
    smallest = min(test.p_value for test in tests)
    return f"{len(tests)} tests find nothing (smallest p = {_p(smallest)}; false alarms: at most {false_alarm:.2%} overall)"


def _fault_in_words(wrong: Sequence[tuple[Compared, Departure]], bound: float) -> str:
    one, place = max(wrong, key=lambda fault: fault[1].gap)
    count = f"{len(wrong)} token{'s' if len(wrong) != 1 else ''}"
    return (
        f"{count} beyond what rounding explains (bound {bound:.2f} nats), the worst by {place.gap:.2f} in {one.prompt}, "
        f"mode {one.mode}, token {place.index}"
    )


def _greedy_difference(compared: Sequence[Compared]) -> Interval | None:
    """Replies to one prompt in several modes are one observation: mostly they are the same."""
    ours, theirs = [], []
    for plain in (one for one in compared if one.mode == PLAIN):
        modes = [one for one in compared if one.prompt == plain.prompt and one.mode != PLAIN]
        ours.append((sum(one.log_likelihood for one in modes), sum(one.places for one in modes)))
        theirs.append((len(modes) * plain.log_likelihood, len(modes) * plain.places))
    return difference(ours, theirs)


def _drawn_difference(drawn: Sequence[DrawnPair]) -> Interval | None:
    return difference(
        [(pair.ours.log_likelihood * pair.our_tokens, pair.our_tokens) for pair in drawn],
        [(pair.plain.log_likelihood * pair.plain_tokens, pair.plain_tokens) for pair in drawn],
    )


# ---- for programs


def document(findings: Findings, judgement: Judgement, manifest: Mapping[str, Any], false_alarm: float) -> dict[str, Any]:
    """Everything, as JSON values. Probabilities and gaps are natural logarithms (nats)."""
    return {
        "passed": judgement.passed, "verdict": judgement.verdict, "complete": findings.complete,
        "false_alarm": false_alarm, "tests": [asdict(test) for test in judgement.tests],
        "rounding": {**asdict(findings.rounding), "bound": judgement.bound},
        "identity": [_finite(asdict(one)) for one in findings.compared],
        "distribution": [_finite(asdict(one)) for one in findings.contexts],
        "drawn": [_finite(asdict(one)) for one in findings.drawn],
        "log_likelihood": {
            "greedy_difference": asdict(judgement.greedy_difference) if judgement.greedy_difference else None,
            "drawn_difference": asdict(judgement.drawn_difference) if judgement.drawn_difference else None,
        },
        "skipped": [{"prompt": name, "reason": reason} for name, reason in findings.skipped.items()],
        "manifest": dict(manifest),
    }


def _finite(value: Any) -> Any:
    """JSON has no infinity: a token that is ruled out has a gap of null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---- for people


def summary_lines(findings: Findings, judgement: Judgement) -> list[tuple[str, str]]:
    """Label and value: the evidence behind the verdict."""
    lines = []
    for mode in dict.fromkeys(one.mode for one in findings.compared if one.mode != PLAIN):
        rows = [one for one in findings.compared if one.mode == mode]
        drafted, kept = sum(one.drafted for one in rows), sum(one.accepted for one in rows)
        same = sum(one.first_difference is None for one in rows)
        departures = sum(len(one.departures) for one in rows)
        expected = sum(one.expected_flips for one in rows)
        lines.append((f"temperature 0, {mode}", (
            f"{same} of {len(rows)} replies the same as plain, {sum(one.tokens for one in rows)} tokens "
            f"({kept} of {drafted} drafted ones kept), {departures} near ties the other way (up to {expected:.1f} expected)"
        )))
    rounding = findings.rounding
    lines.append(("rounding here", (
        f"blocks move the distance of two tokens by {rounding.spread:.3f} nats, at most {rounding.largest:.3f} in "
        f"{rounding.places} places; near ties are gaps up to {judgement.bound:.3f}"
    )))
    if findings.drawn:
        drafted = sum(pair.drafted for pair in findings.drawn)
        lines.append(("drawn replies", f"{len(findings.drawn)} read again, {drafted} drafted tokens judged"))
    for context in findings.contexts:
        test = context.test
        outcome = f"chi-square {test.statistic:.1f} in {test.cells} cells, p = {_p(test.p_value)}" if test else (
            "too few samples" if context.samples < FEWEST else "too certain to test"
        )
        lines.append((f"distribution, {context.prompt}", f"{context.samples} samples, {context.drafted} drafted: {outcome}"))
    for label, interval in (("greedy", judgement.greedy_difference), ("drawn", judgement.drawn_difference)):
        if interval:
            lines.append((f"log-likelihood, {label}", (
                f"speculative less plain {interval.value:+.4f} nats a token (95 %: {interval.low:+.4f} to {interval.high:+.4f})"
            )))
    return lines


def places_table(findings: Findings, judgement: Judgement) -> Table | None:
    """Every place where a reply has another token than the target's first choice, the widest gaps first."""
    from app.tables import table

    places = [(one, place) for one in findings.compared for place in one.departures]
    if not places:
        return None
    places.sort(key=lambda entry: -entry[1].gap)
    rows = [
        (
            one.prompt, one.mode, str(place.index), f"{place.gap:.3f}", "fault" if place.gap > judgement.bound else "near tie",
            _quote(place.before)[-20:], _quote(place.token_text), _quote(place.best_text),
        )
        for one, place in places[:MOST_SHOWN]
    ]
    return table(("prompt", "mode", "token", "gap (nats)", "", "after", "written", "first choice"), rows)


def _quote(text: str) -> str:
    return sanitize(text.replace("\n", "\\n").replace("\t", "\\t"))


def _p(value: float) -> str:
    return f"{value:.2g}" if value >= 1e-4 else f"{value:.0e}"
