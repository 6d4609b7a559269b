"""Whose each character of a reply is: against a decoder that reads the tokens one by one and holds nothing back."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Engine, RoundDone, SamplingParams, TextDelta
from engine.attribution import Attribution
from engine.text_stream import TextStream
from engine.values import Origin
from tests.engine.helpers import Done, ask
from tests.engine.test_engine import config
from tests.engine.test_text_stream import DATA, PLACES, STOPS, cut


def expected(pieces: Iterable[tuple[Origin, bytes]], characters: int) -> list[Origin]:
    """The proposer of each of the first `characters`; a character that is never completed is the last token's."""
    utf8 = codecs.getincrementaldecoder("utf-8")("replace")
    owners: list[Origin] = []
    last: Origin = "target"
    for last, piece in pieces:
        owners += [last] * len(utf8.decode(piece))
    owners += [last] * len(utf8.decode(b"", final=True))
    return owners[:characters]


def one_by_one(origins: Sequence[Origin], lengths: Sequence[int]) -> list[Origin]:
    return [origin for origin, length in zip(origins, lengths, strict=True) for _ in range(length)]


@given(DATA, STOPS, PLACES, st.lists(st.sampled_from(["target", "model", "ngram"]), min_size=60, max_size=60))
def test_a_character_is_of_the_token_that_completed_it(
    data: bytes, stops: list[str], places: list[int], origins: list[Origin]
) -> None:
    pieces = list(zip(origins, cut(data, places), strict=False))
    stream, attribution = TextStream(stops), Attribution()
    text, found = "", list[Origin]()
    for origin, piece in pieces:
        before = stream.characters
        released = stream.push([piece])
        attribution.add(origin, stream.characters - before)
        text += released
        found += one_by_one(*attribution.take(len(released)))
        if stream.stopped:
            break
    rest = stream.finish()
    found += one_by_one(*attribution.take(len(rest)))
    assert found == expected(pieces, len(text + rest))


def test_nothing_is_nobody_s() -> None:
    attribution = Attribution()
    attribution.add("model", 2)
    assert attribution.take(0) == ((), ())
    assert attribution.take(1) == (("model",), (1,))
    attribution.add("target", 0)
    attribution.add("ngram", 3)
    assert attribution.take(3) == (("model", "ngram"), (1, 2))


@pytest.fixture(scope="module")
def pair(target: Path, drafts: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterable[Engine]:
    with Engine(config(target, drafts["fair"], profile_dir=tmp_path_factory.mktemp("profiles"))) as engine:
        yield engine


def told(done: Done) -> list[Origin]:
    deltas = [event for event in done.events if isinstance(event, TextDelta)]
    assert all(sum(delta.lengths) == len(delta.text) > 0 and 0 not in delta.lengths for delta in deltas)
    return [origin for delta in deltas for origin in one_by_one(delta.origins, delta.lengths)]


def proposed(engine: Engine, done: Done) -> list[tuple[Origin, bytes]]:
    """The reply's tokens, and who proposed them, as the rounds tell it."""
    pieces: list[tuple[Origin, bytes]] = []
    for event in done.events:
        if isinstance(event, RoundDone):
            for i, token in enumerate(event.round.emitted):
                pieces.append((event.round.origin if i < event.round.accepted else "target", engine.target.piece(token)))
    return pieces


@pytest.mark.parametrize("stop", [(), ("aaé😀é😀",), ("éa", "😀a")])
@pytest.mark.parametrize("max_tokens", [90, 91, 92, 93])
def test_a_reply_s_characters_of_several_tokens_each(pair: Engine, stop: tuple[str, ...], max_tokens: int) -> None:
    """Each token of the tiny models is one byte."""
    free = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, grammar="root ::= [aé😀]*")
    done = ask(pair, mode="fixed:3", sampling=free, max_tokens=max_tokens, stop=stop)
    found = told(done)
    assert found == expected(proposed(pair, done), len(done.text))
    if not stop:
        assert set(found) == {"target", "model"}
