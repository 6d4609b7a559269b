"""How the child tells a reply: few messages, nothing lost, nothing late that matters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.errors import DecodeFailed
from engine.messages import Message
from engine.values import (
    Finished,
    GenerationEvent,
    Notice,
    PrefillProgress,
    Round,
    RoundDone,
    TextDelta,
    Written,
)
from engine.worker import _send_events


def done(token: int) -> RoundDone:
    return RoundDone(Round("target", (), (), 0, 0, (token,), token, 0, False, 0.0, 0.1, 0.0, 0.1, None, ""), "")


FIRST, SECOND, THIRD = TextDelta("a", ("target",), (1,)), TextDelta("bc", ("model", "ngram"), (1, 1)), TextDelta("d", ("target",), (1,))
END = Finished("stop", "abcd", {}, Written((), (), True))


def told(events: Iterator[GenerationEvent]) -> list[tuple[GenerationEvent, ...]]:
    messages: list[Message] = []
    _send_events(7, events, messages.append)
    assert all(message.number == 7 for message in messages)
    return [message.content for message in messages]


@pytest.fixture(autouse=True)
def _time_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.worker.time.monotonic", lambda: 1.0)


def test_the_first_round_is_told_at_once_and_the_end_with_all_before_it() -> None:
    assert told(iter([PrefillProgress(1, 2, 0), FIRST, done(1), SECOND, done(2), THIRD, done(3), END])) == [
        (PrefillProgress(1, 2, 0),), (FIRST, done(1)), (TextDelta("bcd", ("model", "ngram", "target"), (1, 1, 1)), done(2), done(3), END),
    ]


def test_a_notice_waits_for_nothing_and_overtakes_nothing() -> None:
    assert told(iter([FIRST, done(1), SECOND, done(2), Notice("look"), THIRD, done(3), END])) == [
        (FIRST, done(1)), (SECOND, done(2), Notice("look")), (THIRD, done(3), END),
    ]


def test_later_rounds_are_told_as_soon_as_enough_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([1.0, 1.0, 1.05, 1.11, 1.11])
    monkeypatch.setattr("engine.worker.time.monotonic", lambda: next(now))
    assert told(iter([FIRST, done(1), SECOND, done(2), THIRD, done(3)])) == [
        (FIRST, done(1)), (TextDelta("bcd", ("model", "ngram", "target"), (1, 1, 1)), done(2), done(3)),
    ]


def test_what_was_written_before_an_error_is_told() -> None:
    def broken() -> Iterator[GenerationEvent]:
        yield from (FIRST, done(1), SECOND, done(2))
        raise DecodeFailed("no")

    messages: list[Message] = []
    with pytest.raises(DecodeFailed):
        _send_events(7, broken(), messages.append)
    assert [message.content for message in messages] == [(FIRST, done(1)), (SECOND, done(2))]
