from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.store import ChatStore, ChatTotals, DrafterTotals
from engine.metrics import Metrics
from engine.values import Round


def report(origin: Any = "model", rounds: int = 2) -> dict[str, Any]:
    """A real report: a first token, then rounds of four drafted and two kept."""
    metrics = Metrics(prompt_tokens=10, cached_tokens=4)
    one = Round(
        origin=origin, candidates=(1, 2, 3, 4), confidence=(0.9,) * 4, judged=4, accepted=2, emitted=(1, 2, 9), context=10,
        match_length=0, parked=False, draft_seconds=0.1, target_seconds=0.2, sampling_seconds=0.0, total_seconds=0.3,
        expected_seconds=None, reason="", plain_seconds=None,
    )
    metrics.first_token()
    metrics.completion_tokens = 1
    for left in range(rounds, 0, -1):
        metrics.add(replace(one, ended=left == 1), decoding=True)
        metrics.decode_seconds += 0.3
    return metrics.report("auto", "")


def test_totals_add_up_the_reports_of_all_replies(store: ChatStore, chat: int) -> None:
    question = store.add_message(chat, None, "user", "question")
    for made in (report(), report("ngram", rounds=1), None):
        reply = store.start_reply(chat, question.id)
        store.finish_reply(reply.id, "text", (), "complete", made)
    totals = store.totals(chat)
    assert (totals.messages, totals.branches, totals.replies) == (4, 3, 2)
    assert (totals.prompt_tokens, totals.cached_tokens, totals.completion_tokens) == (20, 8, 11)
    assert (totals.rounds, totals.drafted, totals.accepted) == (3, 12, 6)
    assert totals.by_drafter == {"model": DrafterTotals(2, 8, 4), "ngram": DrafterTotals(1, 4, 2)}
    assert totals.decode_seconds == pytest.approx(0.9)
    assert totals.acceptance_rate == 0.5
    assert (totals.drafted_by_position, totals.accepted_by_position) == ((3, 3, 3, 3), (3, 3, 0, 0))
    assert totals.tokens_per_second == pytest.approx(11 / 0.9, rel=1e-3), "two of them ended the replies"
    assert totals.seconds > totals.decode_seconds


def test_a_chat_without_replies_has_none(store: ChatStore, chat: int) -> None:
    assert store.totals(chat) == ChatTotals()
    assert store.totals(chat).tokens_per_second is None


def test_a_report_of_somebody_else_counts_for_what_it_has(store: ChatStore, chat: int) -> None:
    question = store.add_message(chat, None, "user", "question")
    for odd in ({}, {"usage": None, "timings": [], "speculation": {"by_drafter": {"model": None}, "drafted": None}}):
        store.finish_reply(store.start_reply(chat, question.id).id, "text", (), "complete", odd)
    assert store.totals(chat).drafted == 0
