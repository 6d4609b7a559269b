"""The length rules on simulated machines: a clock, a curve of costs and a text, and what the rule makes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from engine.acceptance import AcceptanceModel
from engine.adaptive_length import AdaptiveLength
from engine.cost import CostModel
from engine.errors import BadRequest
from engine.length import FixedLength, LengthPolicy, Outcome, Plan, Situation, parse_mode

LAPTOP = {1: 0.036, 2: 0.056, 3: 0.077, 4: 0.094, 6: 0.132, 8: 0.210, 12: 0.259, 16: 0.248, 24: 0.371, 32: 0.408, 64: 0.853}
"""A 1.5B Q4_K_M target on two cores, in seconds by rows; its 0.5B draft takes 18 ms a token (measured)."""
GPU = {1: 0.010, 64: 0.0115}
JAGGED = {1: 0.010, 4: 0.011, 5: 0.050, 15: 0.051, 16: 0.012, 17: 0.070, 64: 0.3}
"""Cheap up to 4 rows and at 16."""


def machine(target: dict[int, float], draft_step: float) -> CostModel:
    costs = CostModel()
    for rows, seconds in target.items():
        costs.target.set(rows, 0, seconds)
    costs.draft.set(1, 0, draft_step)
    costs.draft.set(512, 0, draft_step * 20)
    return costs


@dataclass
class Text:
    """How often candidates of a text are kept. `match`: the lookup's match length after so many tokens."""

    model: float = 0.0
    copy: float = 0.0
    match: Callable[[int], int] = lambda done: 0
    confidence: float = 0.8
    ease: float = 0.5


@dataclass
class Run:
    """What a simulated reply did. Seconds are the machine's, whatever the rule believed."""

    plans: list[Plan] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0
    drafting: list[int] = field(default_factory=list)
    """Rounds in which the draft model was asked."""
    parked: int = 0

    def against(self, plain: float) -> float:
        return self.tokens * plain / self.seconds


def simulate(
    policy: LengthPolicy, true: CostModel, text: Text, tokens: int = 800, draft: bool = True, seed: int = 0,
    clock: Callable[[float], float] = lambda seconds: seconds, limit: int = 63,
) -> Run:
    """Decode a reply on a simulated machine. `clock`: what the rule is shown of each time."""
    run, rng, lag = Run(), np.random.default_rng(seed), 50
    policy.begin(50)
    while run.tokens < tokens:
        context, match = 50 + run.tokens, text.match(run.tokens)
        here = min(limit, tokens - run.tokens - 1)
        plan = policy.choose(Situation(context, here, tokens - run.tokens, match, lag if draft else None))
        assert 0 <= plan.length <= max(0, here)
        assert plan.reason
        assert policy.state
        drafting, confidence, n, chance = 0.0, (), 0, text.copy
        if plan.origin == "model" and plan.length:
            drafting += true.catch_up(lag, context)
            n, chance = 1, text.model
            while n < plan.length and policy.go_on((text.confidence,) * n):
                n += 1
                drafting += true.draft_step(context)
            confidence = (text.confidence,) * n
            n = policy.check(confidence)
            confidence = confidence[:n]
            run.drafting.append(len(run.plans))
        elif plan.length:
            n = plan.length
        accepted = next((i for i in range(n) if rng.random() >= chance), n)
        kept = (1.0,) * accepted + (0.0,) * (accepted < n)
        seconds = true.verify(n + 1, context)
        lag = lag + accepted + 1 if plan.origin != "model" else 2
        policy.observe(Outcome(
            plan.origin if n else "target", n + 1, context, accepted + 1, kept, confidence, match,
            None if plan.origin == "ngram" and n else text.copy, clock(drafting + seconds), clock(seconds), text.ease,
        ))
        run.plans.append(plan)
        run.tokens += accepted + 1
        run.seconds += drafting + seconds
        run.parked += policy.parked
    return run


def adaptive(costs: CostModel, **how: bool) -> AdaptiveLength:
    return AdaptiveLength(costs.copy(), AcceptanceModel(), **how)


# ---- modes


def test_modes_are_read() -> None:
    assert [parse_mode(mode) for mode in ("auto", "plain", "ngram", "draft", "fixed:1", "fixed:63")] == [
        ("auto", 0), ("plain", 0), ("ngram", 0), ("draft", 0), ("fixed", 1), ("fixed", 63)
    ]


@pytest.mark.parametrize("mode", ["", "fast", "fixed", "fixed:", "fixed:0", "fixed:64", "fixed:-1", "fixed:x", "auto:3", "Auto", "fixed:1.5"])
def test_other_modes_are_refused_with_the_list(mode: str) -> None:
    with pytest.raises(BadRequest, match="use auto, plain, ngram, draft or fixed:K with K from 1 to 63"):
        parse_mode(mode)


def test_a_fixed_length_is_kept_within_the_limit_and_needs_its_drafter() -> None:
    model, copy = FixedLength("model", 5, "always 5"), FixedLength("ngram", 5, "always 5")
    assert model.choose(Situation(10, 63, 100, 0, 1)).length == 5
    assert model.choose(Situation(10, 3, 100, 0, 1)).length == 3
    assert model.choose(Situation(10, 0, 100, 0, 1)).length == 0
    assert model.choose(Situation(10, 63, 100, 4, None)).length == 0
    assert copy.choose(Situation(10, 63, 100, 4, None)) == Plan("ngram", 5, "always 5")
    assert copy.choose(Situation(10, 63, 100, 0, 1)).length == 0
    assert model.go_on((0.1,) * 3)
    assert model.check((0.1,) * 3) == 3


# ---- where drafting cannot win


@pytest.mark.parametrize("text", [Text(model=0.95), Text(model=0.05)], ids=["right", "wrong"])
def test_where_even_a_perfect_draft_costs_more_than_plain_decoding_it_is_never_read(text: Text) -> None:
    costs = machine(LAPTOP, 0.030)
    policy = adaptive(costs)
    run = simulate(policy, costs, text)
    assert run.drafting == []
    assert run.against(LAPTOP[1]) == pytest.approx(1)
    assert policy.parked
    assert "draft model off" in policy.state
    assert "ms" in policy.state


def test_a_useless_draft_is_parked_and_probed_for_under_a_hundredth_of_the_time() -> None:
    """Cheap to check and to draft, but nearly always wrong, with a confidence that says otherwise."""
    costs = machine(GPU, 0.002)
    policy = adaptive(costs)
    text = Text(model=0.03, confidence=0.9, ease=0.1)
    first = simulate(policy, costs, text, 400)
    assert policy.parked
    later = simulate(policy, costs, text, 3000, seed=1)
    assert later.parked > 0.9 * len(later.plans)
    assert later.against(GPU[1]) > 0.98
    assert first.against(GPU[1]) > 0.85
    gaps = np.diff(later.drafting[-6:])
    assert len(later.drafting) < 60
    assert np.all(np.diff(gaps) >= 0), "probes become rarer"
    assert gaps[-1] >= 64


def test_a_wrong_lookup_is_left_alone() -> None:
    costs = machine(LAPTOP, 0.030)
    policy = adaptive(costs)
    run = simulate(policy, costs, Text(copy=0.1, match=lambda done: 3), draft=False)
    assert run.against(LAPTOP[1]) > 0.93
    late = simulate(policy, costs, Text(copy=0.1, match=lambda done: 3), draft=False, seed=1)
    assert late.against(LAPTOP[1]) > 0.96


def test_nothing_is_drafted_where_nothing_is_known_or_nothing_fits() -> None:
    assert adaptive(CostModel()).choose(Situation(10, 63, 100, 30, 1)).length == 0
    assert adaptive(machine(GPU, 0.001)).choose(Situation(10, 0, 1, 30, 1)).length == 0


# ---- where it can


def test_copying_pays_in_long_blocks() -> None:
    costs = machine(LAPTOP, 0.030)
    run = simulate(adaptive(costs), costs, Text(copy=0.97, match=lambda done: 4 + done))
    lengths = [plan.length for plan in run.plans if plan.origin == "ngram"]
    assert np.median(lengths) >= 10
    assert run.against(LAPTOP[1]) > 1.5


def test_a_copy_is_no_longer_than_what_else_the_time_would_bring() -> None:
    """16 rows cost little more than one and bring 13 tokens: rows beyond must be worth that rate, not plain decoding's."""
    costs = machine({1: 0.082, 2: 0.088, 4: 0.094, 8: 0.104, 16: 0.142, 32: 0.265, 64: 0.51}, 0.008)
    run = simulate(adaptive(costs, use_model=False), costs, Text(copy=0.95, match=lambda done: 40 + done), draft=False)
    assert np.median([plan.length for plan in run.plans if plan.origin == "ngram"]) <= 24
    assert run.against(0.082) > 4.5


def test_a_good_draft_is_used_where_checking_is_cheap() -> None:
    costs = machine(GPU, 0.0015)
    policy = adaptive(costs)
    run = simulate(policy, costs, Text(model=0.9, confidence=0.92, ease=0.9))
    assert run.against(GPU[1]) > 1.8
    assert "%" in policy.state
    assert not policy.parked


def test_the_better_drafter_is_asked() -> None:
    costs = machine(GPU, 0.003)
    run = simulate(adaptive(costs), costs, Text(model=0.5, copy=0.98, match=lambda done: 30 + done, confidence=0.5))
    assert sum(plan.origin == "ngram" for plan in run.plans) > 0.8 * len(run.plans)
    assert {plan.origin for plan in simulate(adaptive(costs, use_ngram=False), costs, Text(model=0.9, copy=0.98, match=lambda done: 30)).plans} <= {"model", "target"}
    assert {plan.origin for plan in simulate(adaptive(costs, use_model=False), costs, Text(model=0.9, copy=0.98, match=lambda done: 30)).plans} <= {"ngram", "target"}


def test_steps_in_the_cost_of_checking_are_used() -> None:
    """Copies that are surely right go to 16 rows; nothing ends between 5 and 15, where rows cost five times as much."""
    costs = machine(JAGGED, 0.001)
    run = simulate(adaptive(costs), costs, Text(copy=0.98, match=lambda done: 40 + done), draft=False, tokens=600)
    rows = [plan.length + 1 for plan in run.plans[:-4]]
    assert 16 in rows
    assert not [n for n in rows if 5 <= n <= 15]
    short = adaptive(costs)
    for _ in range(40):
        short.acceptance.observe_ngram(40, 0.5)
    rows = [plan.length + 1 for plan in simulate(short, costs, Text(copy=0.5, match=lambda done: 40), draft=False).plans[:-4]]
    assert max(set(rows), key=rows.count) <= 4


def test_a_text_that_turns_easy_is_noticed() -> None:
    """The parked draft is read again once it would be right, by its probes or by the target's own confidence."""
    costs = machine(GPU, 0.0015)
    policy = adaptive(costs)
    simulate(policy, costs, Text(model=0.03, confidence=0.4, ease=0.1), 1500)
    assert policy.parked
    run = simulate(policy, costs, Text(model=0.92, confidence=0.95, ease=0.95), 1500, seed=2)
    assert run.against(GPU[1]) > 1.4


# ---- seeds


def shaky(seed: int) -> Callable[[float], float]:
    rng = np.random.default_rng(seed)
    return lambda seconds: seconds * float(rng.uniform(0.2, 5))


@pytest.mark.parametrize("text", [Text(model=0.8, copy=0.6, match=lambda done: done % 12), Text(model=0.3, copy=0.9, match=lambda done: done % 40)])
def test_no_clock_moves_a_seeded_reply(text: Text) -> None:
    costs = machine(LAPTOP, 0.008)
    runs = [simulate(adaptive(costs, learn_costs=False), costs, text, clock=shaky(seed)) for seed in range(3)]
    assert runs[0].plans == runs[1].plans == runs[2].plans
    assert sum(plan.length for plan in runs[0].plans) > 0


def test_costs_that_were_wrong_are_learned_from_the_clock() -> None:
    """Measured on a quiet machine, decoded on one where every row costs as much as the first."""
    believed, true = machine(GPU, 0.001), machine({n: 0.010 * n for n in range(1, 65)}, 0.001)
    policy = adaptive(believed)
    simulate(policy, true, Text(model=0.6, confidence=0.6, ease=0.6), 2000)
    run = simulate(policy, true, Text(model=0.6, confidence=0.6, ease=0.6), 1000, seed=3)
    assert run.against(0.010) > 0.9


def test_the_state_is_a_sentence_with_numbers() -> None:
    costs = machine(GPU, 0.002)
    for text, words in (
        (Text(model=0.9, confidence=0.9, ease=0.9), "drafting up to"), (Text(model=0.02, confidence=0.5, ease=0.1), "draft model off"),
        (Text(copy=0.99, match=lambda done: 60), "copying up to"),
    ):
        policy = adaptive(costs)
        simulate(policy, costs, text, draft=text.model > 0)
        assert words in policy.state
        assert any(c.isdigit() for c in policy.state)


def test_reading_a_long_prompt_for_a_short_rest_is_not_worth_it() -> None:
    """The draft has 4,000 tokens to read, and 20 are left to write."""
    costs = machine(GPU, 0.001)
    costs.draft.set(4000, 0, 2.0)
    policy = adaptive(costs)
    policy.begin(4000)
    assert policy.choose(Situation(4000, 19, 20, 0, 4000)).origin == "target"
    assert policy.choose(Situation(4000, 63, 4000, 0, 1)).origin == "model"


def confident(policy: AdaptiveLength, values: Sequence[float]) -> int:
    n = 1
    while n < len(values) and policy.go_on(values[:n]):
        n += 1
    return n


def test_an_unsure_draft_ends_earlier() -> None:
    policy = adaptive(machine(GPU, 0.002))
    policy.begin(10)
    policy.choose(Situation(10, 63, 500, 0, 1))
    assert confident(policy, (0.99,) * 12) > confident(policy, (0.05,) * 12)
