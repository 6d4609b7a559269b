from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from app.chat.conversation import OriginSpan, pack_origins, unpack_origins

spans = st.lists(st.builds(OriginSpan, st.sampled_from(["target", "model", "ngram"]), st.integers(0, 5)))


def letters(given_spans: list[OriginSpan] | tuple[OriginSpan, ...]) -> list[str]:
    return [span.origin for span in given_spans for _ in range(span.characters)]


@given(spans)
def test_packing_keeps_who_wrote_each_character_in_the_fewest_spans(given_spans: list[OriginSpan]) -> None:
    unpacked = unpack_origins(pack_origins(given_spans))
    assert letters(unpacked) == letters(given_spans)
    assert all(a.origin != b.origin for a, b in itertools.pairwise(unpacked))
