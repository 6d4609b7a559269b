from __future__ import annotations

from app.chat.conversation import OriginSpan
from app.chat.origins import OriginRuns, pieces_of
from engine import TextDelta


def test_neighbours_of_one_origin_are_one_run() -> None:
    runs = OriginRuns()
    for origin, characters in (("target", 3), ("target", 2), ("model", 0), ("model", 4), ("target", 1)):
        runs.add(origin, characters)  # type: ignore[arg-type]
    assert runs.spans() == (OriginSpan("target", 5), OriginSpan("model", 4), OriginSpan("target", 1))
    assert OriginRuns().spans() == ()


def test_a_delta_is_cut_token_by_token() -> None:
    delta = TextDelta("ab cd", ("model", "model", "target"), (1, 3, 1))
    assert list(pieces_of(delta)) == [("model", "a"), ("model", "b c"), ("target", "d")]
