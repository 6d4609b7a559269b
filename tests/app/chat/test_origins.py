from __future__ import annotations

import pytest

from app.chat.conversation import OriginSpan
from app.chat.origins import OriginRuns, pieces_of
from engine import TextDelta


def test_neighbours_of_one_origin_are_one_run() -> None:
    runs = OriginRuns()
    for origin, characters in (("target", 3), ("target", 2), ("model", 0), ("model", 4), ("target", 1)):
        runs.add(origin, characters)  # type: ignore[arg-type]
    assert runs.spans() == (OriginSpan("target", 5), OriginSpan("model", 4), OriginSpan("target", 1))
    assert OriginRuns().spans() == ()


@pytest.mark.parametrize(
    ("delta", "pieces"),
    [
        (TextDelta("the end"), [("target", "the end")]),
        (TextDelta("a", ("target",)), [("target", "a")]),
        (TextDelta("one two", ("model", "model")), [("model", "one two")]),
        (TextDelta("abcd", ("model", "model", "model", "target")), [("model", "abc"), ("target", "d")]),
        (TextDelta("x", ("ngram", "target")), [("ngram", "x")]),
    ],
)
def test_a_delta_is_cut_where_its_proposer_changes(delta: TextDelta, pieces: list[tuple[str, str]]) -> None:
    found = list(pieces_of(delta))
    assert "".join(text for _, text in found) == delta.text
    assert found == pieces
