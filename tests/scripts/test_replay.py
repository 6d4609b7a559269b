"""The replay itself: traces come back as written, rounds cost and keep what they should, the lookup is the engine's."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from engine.length import FixedLength
from engine.sampling import Distribution
from scripts.replay.machine import Machine, load_machines
from scripts.replay.policies import LookupFirst, all_knowing
from scripts.replay.simulate import (
    NO_LOOKUP,
    Fault,
    fixed_ratio,
    greedy_draft,
    lookup,
    noise_draft,
    plain_seconds,
    replay,
    sampled_draft,
    tempered_draft,
)
from scripts.replay.trace import ReplyTrace, load_traces, save_traces

TRACES = Path(__file__).parents[1] / "data" / "traces" / "starter.npz"
FLAT = Machine("flat", "", "", "", {1: 0.010, 64: 0.010}, {1: 0.001, 64: 0.064}, 0.0, 0.0)


def written(tokens: list[int], drafted: list[int], prompt: list[int] | None = None) -> ReplyTrace:
    """A greedy reply whose draft is right where `drafted` agrees."""
    n = len(tokens)
    return ReplyTrace(
        "test", 0, 0.0, True, np.array(prompt or [1, 2, 3], dtype=np.int32), np.array(tokens, dtype=np.int32), np.full(n, 0.9),
        np.full(n, 0.8), np.array(drafted, dtype=np.int32), tuple(Distribution.one_hot(t) for t in tokens),
        tuple(Distribution.one_hot(t) for t in drafted),
        tuple(np.zeros(0) if x == y else np.array([0.5, 0.25]) for x, y in zip(drafted, tokens, strict=True)),
    )


@pytest.fixture(scope="module")
def traces() -> list[ReplyTrace]:
    return load_traces(TRACES)


def test_a_trace_comes_back_as_it_was_written(tmp_path: Path) -> None:
    trace = written([5, 6, 7, 8], [5, 9, 7, 8])
    save_traces(tmp_path / "t.npz", [trace, trace], {"target": "t"})
    for again in load_traces(tmp_path / "t.npz"):
        assert (again.suite, again.temperature, again.ended) == ("test", 0.0, True)
        assert again.prompt.tolist() == [1, 2, 3]
        assert again.tokens.tolist() == [5, 6, 7, 8]
        assert again.drafted.tolist() == [5, 9, 7, 8]
        assert [len(piece) for piece in again.branch] == [0, 2, 0, 0]
        assert [again.kept(t) for t in range(4)] == [True, False, True, True]
        assert again.confidence(0) == pytest.approx(0.8, abs=1e-3)


def test_a_round_keeps_what_the_target_would_and_costs_what_the_machine_says() -> None:
    """10 tokens, the draft wrong at place 5; two candidates a round after the first token."""
    trace = written(list(range(10, 20)), [*range(10, 15), 99, *range(16, 20)])
    score = replay(trace, FixedLength("model", 2, "two"), FLAT, sampled_draft(trace))
    # 1: 1 2 -> +3; 4: 4 kept, 5 refused -> +4 5; 6: 6 7 -> +8; 9: last one
    assert score.lengths == [2, 2, 2, 2]
    assert score.plain == pytest.approx(9 * 0.010)
    reads = 0.004 + 0.001 * (1 + 1 + 1) + 0.001 * 4  # the prompt and one token, then what each round left unread
    assert score.seconds == pytest.approx(4 * 0.010 + reads, abs=0.0021)


def test_the_lookup_copies_what_the_engines_would() -> None:
    text = [40, 41, 42, 43, 44, 45, 46, 47]
    trace = written([9, *text[:6], 7], [0] * 8, prompt=[*text, 1, 2])
    view = lookup(trace)
    assert view.match[3] == 2  # 40 41 stood before
    assert view.run[3] == 4  # 42 43 44 45 follow, 46 does not
    assert view.match[0] == view.match[1] == 0


def test_short_cuts_give_what_the_replay_gives(traces: list[ReplyTrace]) -> None:
    machines = load_machines()
    for trace in traces[:3]:
        draft, copies = sampled_draft(trace), lookup(trace)
        for name in ("rtx3090-8b-q4", "epyc-2core-q8"):
            for length in (1, 6):
                rule = FixedLength("model", length, "fixed")
                assert fixed_ratio(trace, machines[name], draft, length) == pytest.approx(
                    replay(trace, rule, machines[name], draft).ratio
                )
                assert fixed_ratio(trace, machines[name], draft, length, copies) == pytest.approx(
                    replay(trace, LookupFirst(rule), machines[name], draft, copies).ratio
                )


def test_nobody_beats_the_one_who_knows_everything(traces: list[ReplyTrace]) -> None:
    machine = load_machines()["rtx4060-7b-q4"]
    for trace in traces[:6]:
        bound = plain_seconds(trace, machine) / all_knowing(trace, machine, sampled_draft(trace), None)
        assert all(fixed_ratio(trace, machine, sampled_draft(trace), n) <= bound + 1e-9 for n in range(1, 17))


def test_acceptance_is_what_rejection_sampling_would_keep(traces: list[ReplyTrace]) -> None:
    """sum of min(p, q) is the chance of a draft drawn from q; a greedy draft has p(argmax q), which is less."""
    sampled = [trace for trace in traces if trace.temperature == 1.0]
    due = np.mean([
        float((q.probs - q.excess(1.0, p)).sum()) for trace in sampled for p, q in zip(trace.p, trace.q, strict=True)
    ])
    kept = np.mean([k for trace in sampled for k in sampled_draft(trace).kept])
    greedy = np.mean([k for trace in sampled for k in greedy_draft(trace).kept])
    assert kept == pytest.approx(due, abs=0.015)
    assert greedy < kept - 0.02
    cooler = np.mean([k for trace in sampled for k in tempered_draft(trace, 0.3, np.random.default_rng(0)).kept])
    assert cooler < kept, "a draft much cooler than the target is refused more often"


def test_noise_begins_where_it_should(traces: list[ReplyTrace]) -> None:
    view = noise_draft(traces[0], np.random.default_rng(0), sure=True, start=20)
    assert view.kept[:20] == sampled_draft(traces[0]).kept[:20]
    assert not any(view.kept[20:])


def test_a_fault_slows_everything_from_its_token_on() -> None:
    trace = written(list(range(10, 50)), [0] * 40)
    plain = FixedLength("target", 0, "plain")
    assert replay(trace, plain, FLAT, None, NO_LOOKUP, fault=Fault(20, 2.0)).seconds == pytest.approx(0.010 * (19 + 2 * 20))
