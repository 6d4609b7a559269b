"""The KV invariant: whatever was read, refused, cancelled or cut before, the next logits are a fresh cache's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import DecodeAborted, DecodeFailed
from engine.llama.binding import CancelFlag
from engine.llama.context import Context
from engine.llama.model import Model
from engine.session import Session
from engine.token_cache import TokenCache, can_roll_back
from tests.engine.helpers import Loop, PullAt, Reference, Script, check_greedy, fixed

KINDS = ["target", "sliding", "recurrent", "hybrid"]
TOKENS = [int(t) for t in np.random.default_rng(0).integers(32, 127, 600)]
CLOSE = 0.1
"""More than logits differ for having been read in other batches; a lost or stale token makes a difference of 1 to 10."""


Open = Callable[..., TokenCache]


@pytest.fixture
def open_cache(request: pytest.FixtureRequest) -> Iterator[Open]:
    opened: list[Any] = []

    def open_cache(kind: str, cancel: CancelFlag | None = None, batch: int = 512) -> TokenCache:
        model = Model(request.getfixturevalue(kind))
        context = Context(
            model, n_ctx=512, batch=batch, max_outputs=64, threads=1, batch_threads=1, cancel=cancel
        )
        opened.extend([context, model])
        return TokenCache(context)

    yield open_cache
    for thing in opened:
        thing.close()


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Reference]]:
    opened: list[Reference] = []

    def open_reference(kind: str) -> Reference:
        opened.append(Reference(request.getfixturevalue(kind)))
        return opened[-1]

    yield open_reference
    for reference in opened:
        reference.close()


def rows_agree(cache: TokenCache, reference: Reference, outputs: int) -> None:
    """The last `outputs` rows that were read are what a fresh cache gives."""
    for i in range(outputs):
        tokens = cache.held[: len(cache.held) - outputs + 1 + i]
        difference = np.abs(cache.context.logits(i) - reference.logits(tokens)).max()
        assert difference < CLOSE, f"after {len(tokens)} tokens"


# ---- taking tokens back


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_reading_and_taking_back_is_a_fresh_cache(
    kind: str, seed: int, open_cache: Open, fresh: Callable[[str], Reference]
) -> None:
    """Blocks of 1 to 9 rows, of which some, none or more than the last block are taken back: all layers together."""
    rng = np.random.default_rng(seed)
    cache, reference = open_cache(kind), fresh(kind)
    cache.extend(TOKENS[:40], 1)
    for _ in range(40):
        back = int(rng.choice([0, 0, 1, 2, 3, 5, 8, 20]))
        cache.keep(max(1, len(cache.held) - back))
        block = [int(t) for t in rng.integers(32, 127, rng.integers(1, 10))]
        cache.extend(block, len(block))
        rows_agree(cache, reference, len(block))


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_taken_back_is_known(kind: str, open_cache: Open) -> None:
    context = open_cache(kind).context
    assert can_roll_back(context) is (kind != "recurrent")
    assert context.length() == 0


def test_snapshots_reach_no_further_than_the_last_decode(open_cache: Open) -> None:
    """llama.cpp would take back up to n_rs_seq tokens, over older decodes as well, whose snapshots have been
    overwritten in part: it says yes, and the state is another text's."""
    context = open_cache("hybrid").context
    for rows, back, possible in ((3, 2, True), (3, 3, False), (3, 5, False), (1, 1, False), (8, 7, True)):
        context.clear()
        context.decode(TOKENS[:20], 0, 1)
        context.decode(TOKENS[20 : 20 + rows], 20, 1)
        assert context.truncate(20 + rows - back) is possible
        assert context.length() == 20 + rows - back * possible


@pytest.mark.parametrize("kind", KINDS)
def test_the_longest_shared_prefix_is_kept(kind: str, open_cache: Open, fresh: Callable[[str], Reference]) -> None:
    session = Session(open_cache(kind))
    assert session.begin(TOKENS[:100]) == 0
    session.score([])
    assert session.begin([*TOKENS[:60], 7, 8, 9]) == 60
    assert session.score([]) == 3
    rows_agree(session._cache, fresh(kind), 1)
    assert session.begin([*TOKENS[:60], 7]) == 60, "the last token is read again for its logits"
    session.score([])
    rows_agree(session._cache, fresh(kind), 1)


def test_a_reproducible_reply_reuses_only_what_a_first_one_would_read_in_the_same_batches(open_cache: Open) -> None:
    """The last bits of a logit depend on how many rows were read together, and a draw can depend on the last bits."""
    session, logits = Session(open_cache("target", batch=32)), []
    for before in ([], TOKENS[:100], TOKENS[:70], [*TOKENS[:50], 65, 66], TOKENS[40:140]):
        if before:
            session.begin(before)
            list(session.prefill())
            session.score([67, 68])
            session.commit([67, 65], 1)
        reused = session.begin(TOKENS[:100], reproducible=True)
        assert reused in (0, 32, 64, 96)
        list(session.prefill())
        session.score([])
        logits.append(session.logits(0).tobytes())
    assert len(set(logits)) == 1
    assert session.begin(TOKENS[:100], reproducible=True) == 96
    assert session.begin(TOKENS[:100]) == 96
    session.score([])
    assert session.begin([*TOKENS[:100], 65], reproducible=True) == 96
    session.score([])
    assert session.begin([*TOKENS[:100], 65]) == 100


@pytest.mark.parametrize("batch", [16, 512])
def test_a_long_prompt_is_read_in_batches_and_its_last_is_left_for_the_first_round(
    batch: int, open_cache: Open, fresh: Callable[[str], Reference]
) -> None:
    session = Session(open_cache("target", batch=batch))
    session.begin(TOKENS[:200])
    seen = list(session.prefill())
    assert seen == [*range(batch, 200, batch)][: len(seen)]
    assert 0 < 200 - (seen[-1] if seen else 0) <= batch
    session.score([])
    rows_agree(session._cache, fresh("target"), 1)
    session.forget()
    assert session.begin(TOKENS[:200]) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_going_back_beyond_the_window_is_a_fresh_cache(
    kind: str, open_cache: Open, fresh: Callable[[str], Reference]
) -> None:
    """An earlier message was edited. llama.cpp keeps 256 cells of a window of 24 unless told to keep all, and says
    yes to going back beyond them."""
    cache, reference = open_cache(kind, batch=32), fresh(kind)
    cache.extend(TOKENS[:450], 1)
    for length in (430, 60, 20):
        cache.keep(length)
        cache.extend([65, 66, 67], 3)
        rows_agree(cache, reference, 3)


@pytest.mark.parametrize("kind", ["sliding", "hybrid"])
@pytest.mark.parametrize("length", [1, 3, 7])
def test_refused_candidates_leave_no_trace_beyond_the_window(kind: str, length: int, request: pytest.FixtureRequest) -> None:
    """300 tokens through a window of 24; two of three candidates are wrong."""
    path = request.getfixturevalue(kind)
    with Loop(path) as loop, Reference(path) as reference:
        plain = loop.run(max_tokens=300).tokens
        prompt = len(loop.session.tokens) - 300

        def mostly_wrong(tokens: list[int], limit: int) -> list[int]:
            at = len(tokens) - prompt
            return [t if i % 3 == 0 else 65 for i, t in enumerate(plain[at : at + limit], at)]

        done = loop.run(policy=fixed(length), drafter=Script(mostly_wrong), max_tokens=300)
        assert check_greedy(reference, loop.session.tokens[:prompt], done, max_tokens=300) <= 4
        assert done.drafted > done.accepted > 10


def test_a_hybrid_model_s_text_is_its_own_however_short_the_reply_before(hybrid: Path) -> None:
    """A regenerated reply goes back over single-row decodes, where there are no snapshots."""
    with Loop(hybrid) as loop, Reference(hybrid) as reference:
        for tokens in (1, 2, 4, 7, 12):
            done = loop.run(max_tokens=tokens)
            assert check_greedy(reference, loop.session.tokens[:-tokens], done, max_tokens=tokens) == 0


# ---- decodes that stop half-way


@pytest.mark.parametrize("kind", KINDS)
def test_an_aborted_decode_leaves_the_cache_usable_wherever_it_stopped(
    kind: str, open_cache: Open, fresh: Callable[[str], Reference]
) -> None:
    flag = PullAt()
    cache, reference = open_cache(kind, flag, batch=32), fresh(kind)
    cache.extend(TOKENS[:90], 1)
    flag.pull_at(0)
    cache.extend(TOKENS[90:95], 5)
    polls = flag.polls
    assert polls > 10
    for at in range(1, polls + 1, 3):
        cache.keep(90)
        flag.pull_at(at)
        with pytest.raises(DecodeAborted):
            cache.extend(TOKENS[90:95], 5)
        flag.pull_at(0)
        assert cache.held == TOKENS[: len(cache.held)], "the cache holds what it says"
        kept = len(cache.held)
        cache.extend(TOKENS[kept:95], 5)
        rows_agree(cache, reference, 5)


def test_an_aborted_prompt_keeps_the_batches_that_were_read(open_cache: Open, fresh: Callable[[str], Reference]) -> None:
    flag = PullAt()
    cache = open_cache("target", flag, batch=32)
    cache.extend(TOKENS[:32], 0)
    per_batch, flag.polls = flag.polls, 0
    flag.pull_at(2 * per_batch + 3)
    with pytest.raises(DecodeAborted):
        cache.extend(TOKENS[32:200], 0)
    assert cache.held == TOKENS[:96]
    flag.pull_at(0)
    cache.extend(TOKENS[96:200], 1)
    rows_agree(cache, fresh("target"), 1)


def test_a_refused_batch_leaves_the_cache_as_it_was(open_cache: Open, fresh: Callable[[str], Reference]) -> None:
    cache = open_cache("target")
    cache.extend(TOKENS[:50], 1)
    with pytest.raises(DecodeFailed, match="code -1"):
        cache.extend([5, -3], 1)
    assert cache.held == TOKENS[:50]
    cache.extend(TOKENS[50:52], 1)
    rows_agree(cache, fresh("target"), 1)


def test_a_full_context_is_an_error_that_says_so(open_cache: Open) -> None:
    cache = open_cache("target")
    cache.extend(TOKENS[:512], 1)
    with pytest.raises(DecodeFailed, match="no room in the KV cache for 3 tokens at 512 of 512"):
        cache.extend(TOKENS[512:515], 1)
    assert len(cache.held) == cache.context.length() == 512


def test_a_hybrid_draft_is_not_mistaken_for_one_that_rolls_back(open_cache: Open) -> None:
    """Drafting reads one token a decode, and snapshots do not reach over decodes."""
    assert not can_roll_back(open_cache("hybrid").context, one_by_one=True)
    assert can_roll_back(open_cache("target").context, one_by_one=True)
