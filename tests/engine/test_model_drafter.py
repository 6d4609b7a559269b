"""The small model as drafter: what it proposes, from which distribution, and how far it is behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine import SamplingParams
from engine.drafters.model import ModelDrafter
from engine.errors import DecodeAborted
from engine.llama.binding import CancelFlag
from engine.llama.context import Context
from engine.llama.model import Model
from engine.token_cache import TokenCache
from engine.vocabulary import SharedVocabulary
from tests import tiny_models as tiny
from tests.engine.helpers import FREE, GREEDY, Reference, Samplers

PROMPT = list(b"def main():\n    print('hello')\n")
SHARED = 262
FILTERED = SamplingParams(temperature=0.7, top_k=20, top_p=0.9, min_p=0.02, presence_penalty=0.8)


class Small:
    """A draft model, its drafter, and what its decodes cost."""

    def __init__(self, path: Path, shared: int = SHARED, n_ctx: int = 512) -> None:
        self.model = Model(path)
        self.cancel = CancelFlag()
        self.context = Context(
            self.model, n_ctx=n_ctx, batch=n_ctx, max_outputs=1, threads=1, batch_threads=1, cancel=self.cancel
        )
        self.drafter = ModelDrafter(TokenCache(self.context), SharedVocabulary(shared))
        self.read: list[int] = []

    def begin(self, params: SamplingParams, tokens: Sequence[int] = PROMPT, seed: int = 0) -> ModelDrafter:
        self.read.clear()
        self.drafter.configure(params, np.random.default_rng(seed), lambda rows, context, seconds: self.read.append(rows))
        self.drafter.begin(tokens)
        return self.drafter

    def close(self) -> None:
        self.drafter.release()
        self.context.close()
        self.model.close()


@pytest.fixture
def small(draft: Path) -> Iterator[Small]:
    small = Small(draft)
    yield small
    small.close()


@pytest.fixture(scope="module")
def reference(draft: Path) -> Iterator[Reference]:
    with Reference(draft) as reference:
        yield reference


@pytest.mark.parametrize("params", [FREE, FILTERED, SamplingParams(grammar="root ::= [a-f]*", top_k=0)])
def test_q_is_the_distribution_each_token_was_drawn_from(params: SamplingParams, small: Small, reference: Reference) -> None:
    """Recomputed from the draft's own logits and samplers, one row at a time, after rejections as well."""
    drafter, tokens = small.begin(params), list(PROMPT)
    for kept in (4, 0, 2, 1, 4):
        draft = drafter.propose(4)
        assert len(draft) == len(draft.probs) == len(draft.confidence) == 4
        with Samplers(reference.model, params, 512, PROMPT) as samplers:
            for token in tokens[len(PROMPT) :]:
                samplers.accept(token)
            for i, (token, q, confidence) in enumerate(zip(draft.tokens, draft.probs, draft.confidence, strict=True)):
                assert q is not None
                exact = samplers.probabilities(reference.logits([*tokens, *draft.tokens[:i]]))
                assert q.prob(token) == confidence > 0
                ours = np.zeros(len(exact))
                ours[q.ids] = q.probs
                assert np.abs(ours - exact).max() < 0.02
                samplers.accept(token)
        committed = [*draft.tokens[:kept], ord("a")]
        drafter.observe(committed)
        tokens += committed


def test_proposals_follow_q(small: Small) -> None:
    """Chi-square over 4,000 first tokens; a right drafter fails once in 10,000 seeds."""
    from scipy import stats

    drafter = small.begin(FREE, seed=3)
    drawn = [drafter.propose(1) for _ in range(4000)]
    q = drawn[0].probs[0]
    assert q is not None
    counts = np.bincount([d.tokens[0] for d in drawn], minlength=SHARED)[q.ids]
    expected = q.probs * len(drawn)
    large = expected >= 5
    observed = [*counts[large], counts[~large].sum()]
    assert stats.chisquare(observed, [*expected[large], expected[~large].sum()]).pvalue > 1e-4


def test_a_greedy_draft_is_a_point_mass_with_the_draft_s_confidence(small: Small, reference: Reference) -> None:
    draft = small.begin(GREEDY).propose(3)
    assert draft.probs == (None, None, None)
    for i, (token, confidence) in enumerate(zip(draft.tokens, draft.confidence, strict=True)):
        logits = reference.logits([*PROMPT, *draft.tokens[:i]])
        p = np.exp(logits - logits.max())
        assert token == logits.argmax()
        assert confidence == pytest.approx(p.max() / p.sum(), abs=0.02)


def test_go_on_ends_the_draft_after_the_token_it_was_asked_about(small: Small) -> None:
    drafter = small.begin(GREEDY)
    asked: list[int] = []

    def go_on(confidence: Sequence[float]) -> bool:
        asked.append(len(confidence))
        return len(confidence) < 3

    assert len(drafter.propose(8, go_on)) == 3
    assert asked == [1, 2, 3]


def test_nothing_is_read_before_a_proposal_is_asked_for(small: Small) -> None:
    drafter = small.begin(GREEDY)
    drafter.observe([65, 66, 67])
    assert drafter.lag() == len(PROMPT) + 3
    assert (small.read, small.context.length()) == ([], 0)
    drafter.propose(2)
    assert small.read == [len(PROMPT) + 3, 1]


def test_only_what_is_new_is_read_again(small: Small) -> None:
    """All kept: the last candidate and the target's token. None kept: the target's token alone."""
    drafter = small.begin(GREEDY)
    draft = drafter.propose(4)
    drafter.observe([*draft.tokens, ord("z")])
    assert drafter.lag() == 2
    draft = drafter.propose(4)
    drafter.observe([ord("~")])
    assert drafter.lag() == 1
    drafter.propose(1)
    assert small.read == [len(PROMPT), 1, 1, 1, 2, 1, 1, 1, 1]


def test_a_reply_that_goes_on_keeps_what_the_draft_has_read(small: Small) -> None:
    drafter = small.begin(GREEDY)
    draft = drafter.propose(3)
    small.begin(GREEDY, [*PROMPT, *draft.tokens, 65])
    assert small.drafter.lag() == 2
    small.begin(GREEDY, [*PROMPT[:10], 65])
    assert small.drafter.lag() == 1
    small.drafter.forget()
    assert small.drafter.lag() == 11


def test_the_draft_s_context_is_never_overrun(draft: Path) -> None:
    small = Small(draft, n_ctx=256)
    for length, proposed in ((250, 6), (255, 1), (256, 0)):
        drafter = small.begin(GREEDY, [65 + i % 26 for i in range(length)])
        assert drafter.room() == 256 - length
        assert len(drafter.propose(8)) == proposed
    small.close()


@pytest.mark.parametrize("params", [GREEDY, FILTERED, SamplingParams(grammar="root ::= [^z]*")])
def test_a_token_that_only_the_target_has_ends_the_drafting_of_that_reply(params: SamplingParams, small: Small) -> None:
    """The draft can neither read it, nor can its grammar follow."""
    drafter = small.begin(params)
    assert len(drafter.propose(2)) == 2
    drafter.observe([65, SHARED + 38, 66])
    assert drafter.propose(2).tokens == ()
    drafter.observe([67])
    assert drafter.propose(2).tokens == ()
    assert len(small.begin(params, [*PROMPT, SHARED]).propose(2)) == 0
    assert len(small.begin(params).propose(2)) == 2


def test_proposals_stay_among_the_shared_ids(padded: Path) -> None:
    """Of 646 ids of the draft, 262 are the target's; a flat distribution over all would nearly always leave them."""
    small = Small(padded)
    drafter = small.begin(SamplingParams(temperature=100, top_k=0, top_p=1, min_p=0))
    for _ in range(30):
        draft = drafter.propose(4)
        assert max(draft.tokens) < SHARED
        assert all(q is not None and q.ids.max() < SHARED for q in draft.probs)
    small.close()


def test_a_grammar_the_draft_has_no_tokens_for_ends_the_draft(small: Small) -> None:
    """After the a, only an end is allowed, and the bias forbids all of those that the draft has."""
    ends = tuple((token, float("-inf")) for token in (tiny.END_OF_TEXT, tiny.IM_END))
    for params in (GREEDY, SamplingParams()):
        drafter = small.begin(replace(params, grammar='root ::= "a"', logit_bias=ends))
        assert drafter.propose(4).tokens == (ord("a"),)
        drafter.observe([ord("a")])
        assert drafter.propose(4).tokens == ()


def test_a_cancelled_draft_leaves_the_next_one_right(small: Small, reference: Reference) -> None:
    expected = small.begin(GREEDY).propose(5).tokens
    for after in range(5):
        small.drafter.forget()
        drafter = small.begin(GREEDY)

        def stop(confidence: Sequence[float], after: int = after) -> bool:
            if len(confidence) == after:
                small.cancel.set()
            return True

        if after == 0:
            small.cancel.set()
        with pytest.raises(DecodeAborted):
            drafter.propose(8, stop)
        small.cancel.clear()
        assert small.begin(GREEDY).propose(5).tokens == expected
