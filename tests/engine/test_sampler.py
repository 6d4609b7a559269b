"""The sampler chain's short cut gives what the whole vocabulary gives, bit for bit; and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine import BadRequest, DecodeFailed, SamplingParams
from engine.llama.model import Model
from engine.llama.sampler import SamplerChain
from engine.sampling import Distribution
from tests import tiny_models as tiny
from tests.engine.helpers import FREE, GREEDY, Samplers

N_CTX = 256


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """262 tokens and 20,000 unused ids: large enough for the shortlist to be a small part."""
    model = Model(tiny.padded_vocab(tmp_path_factory.mktemp("wide"), 20_000), vocab_only=True)
    yield model
    model.close()


def random_logits(n: int, seed: int, spread: float = 3.0) -> NDArray[np.float32]:
    """All different, so that no filter has a tie to break."""
    rng = np.random.default_rng(seed)
    logits = np.sort(rng.standard_normal(n) * spread).astype(np.float32)
    for i in range(1, n):
        if logits[i] <= logits[i - 1]:
            logits[i] = np.nextafter(logits[i - 1], np.float32(np.inf))
    rng.shuffle(logits)
    return logits


LOGITS = {
    (seed, spread): random_logits(20_262, seed, spread) for seed in range(3) for spread in (0.5, 3.0, 8.0)
}


def chain_of(model: Model, params: SamplingParams, prompt: list[int], reply: list[int], **how: Any) -> SamplerChain:
    chain = SamplerChain(model, params, N_CTX, **how)
    chain.begin(prompt)
    for token in reply:
        chain.accept(token)
    return chain


def whole(model: Model, params: SamplingParams, prompt: list[int], reply: list[int], logits: NDArray[np.float32]) -> Distribution:
    """What llama.cpp's samplers leave of all tokens, as a distribution."""
    with Samplers(model, params, N_CTX, prompt) as samplers:
        for token in reply:
            samplers.accept(token)
        if params.greedy:
            return Distribution.one_hot(int(samplers.adjusted(logits).argmax()))
        left = samplers.filtered(logits)
        ids = np.flatnonzero(left > -np.inf).astype(np.int32)
        return Distribution.from_logits(ids, left[ids])


def off_or(neutral: float, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.just(neutral) | values


tokens = st.integers(0, 300) | st.integers(0, 20_261)
params_strategy = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 2, 40, 500, 30_000]),
    top_p=off_or(1.0, st.floats(0.05, 1.0)),
    min_p=off_or(0.0, st.floats(0.0, 0.9)),
    typical_p=off_or(1.0, st.floats(0.1, 1.0)),
    repeat_penalty=off_or(1.0, st.floats(0.5, 2.0)),
    frequency_penalty=off_or(0.0, st.floats(-2.0, 2.0)),
    presence_penalty=off_or(0.0, st.floats(-2.0, 2.0)),
    penalty_last_n=st.sampled_from([-1, 0, 3, 64]),
    dry_multiplier=off_or(0.0, st.floats(0.1, 5.0)),
    dry_allowed_length=st.integers(0, 3),
    dry_last_n=st.sampled_from([-1, 0, 20]),
    logit_bias=st.lists(st.tuples(tokens, st.floats(-20, 20) | st.just(float("-inf"))), max_size=4, unique_by=lambda b: b[0]).map(tuple),
    grammar=st.none() | st.sampled_from(['root ::= [a-c]+ "x"', "root ::= [^a]*"]),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    params_strategy, st.lists(tokens, max_size=30), st.lists(st.sampled_from(b"bc"), max_size=12),
    st.sampled_from(sorted(LOGITS)),
)
def test_the_shortlist_is_the_whole_vocabulary_bit_for_bit(
    model: Model, params: SamplingParams, prompt: list[int], reply: list[int], which: tuple[int, float]
) -> None:
    logits = LOGITS[which]
    chain = chain_of(model, params, prompt, reply)
    try:
        for _ in range(2):  # the second time with another distance
            expected, found = whole(model, params, prompt, reply, logits), chain.distribution(logits)
            assert found.ids.tolist() == expected.ids.tolist()
            assert found.probs.tobytes() == expected.probs.tobytes()
    finally:
        chain.close()


def test_a_grammar_that_forbids_the_whole_shortlist_is_followed(model: Model) -> None:
    """The only allowed token is the least likely of all."""
    logits = LOGITS[0, 3.0].copy()
    logits[ord("z")] = logits.min() - 1
    for params in (SamplingParams(temperature=0, grammar='root ::= "z"'), SamplingParams(grammar='root ::= "z"', top_k=5)):
        chain = SamplerChain(model, params, N_CTX)
        assert chain.distribution(logits).ids.tolist() == [ord("z")]
        chain.close()


def test_a_fork_runs_ahead_without_its_parent(model: Model) -> None:
    logits = random_logits(20_262, 5)
    params = SamplingParams(
        presence_penalty=1.5, dry_multiplier=1.0, grammar='root ::= ("ab" | "ac" | "b")*', top_k=0, temperature=1.0
    )
    chain = chain_of(model, params, [99, 98], [ord("b")])
    before = chain.distribution(logits)
    fork = chain.fork()
    for token in b"ab":
        fork.accept(token)
    ahead = fork.distribution(logits)
    expected = chain_of(model, params, [99, 98], list(b"bab"))
    assert ahead.probs.tobytes() == expected.distribution(logits).probs.tobytes() != before.probs.tobytes()
    fork.close()
    assert chain.distribution(logits).probs.tobytes() == before.probs.tobytes()
    chain.accept(ord("a"))
    assert set(chain.distribution(logits).ids.tolist()) == set(b"bc")
    for each in (chain, expected):
        each.close()
        each.close()


def test_penalties_see_the_prompt_and_grammars_do_not(model: Model) -> None:
    logits = np.zeros(20_262, dtype=np.float32)
    logits[[97, 98]] = 9.0, 8.5
    chain = chain_of(model, SamplingParams(temperature=0, presence_penalty=1.0, grammar='root ::= "a" | "b"'), [97], [])
    assert chain.greedy(logits) == 98
    chain.close()


# ---- a draft with fewer ids than the target


SHARED = 262


def test_only_shared_ids_are_proposed_whatever_the_request_names(model: Model, target: Path) -> None:
    """A bias on an id that only the target has, as a draft's chain is given it."""
    small = Model(target, vocab_only=True)
    logits = random_logits(SHARED, 3)
    for params in (
        SamplingParams(temperature=0, logit_bias=((300, 50.0), (97, 30.0))),
        SamplingParams(top_k=40, logit_bias=((300, 50.0), (97, 30.0))),
        SamplingParams(top_k=0, logit_bias=((300, 50.0), (97, 30.0))),
        SamplingParams(top_k=5, logit_bias=((97, 30.0),), presence_penalty=1.0, dry_multiplier=1.0),
    ):
        for draft in (small, model):
            chain = chain_of(draft, params, [300, 5], [300, 301, 6], n_vocab=SHARED)
            found = chain.distribution(logits)
            assert found.ids.max() < SHARED
            assert found.prob(97) > 0.9
            chain.close()
    small.close()


# ---- what is refused, and how


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        ('root ::= "a', "unexpected end of input|expecting"),
        ("root ::= nowhere", "Undefined rule identifier 'nowhere'"),
        ('start ::= "a"', "root"),
        ('root ::= root "a"', "left recursion"),
        ("", "empty"),
        ("   \n# nothing but a comment\n", "does not parse"),
    ],
)
def test_a_grammar_that_does_not_parse_is_refused_in_one_line_with_the_reason(
    grammar: str, reason: str, model: Model, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadRequest, match=f"grammar.*({reason})") as error:
        SamplerChain(model, SamplingParams(grammar=grammar), N_CTX)
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", ""), "the terminal belongs to the interface"


@pytest.mark.parametrize(
    "schema",
    ["not JSON", "[]", "7", '{"type": "banana"}', '{"$ref": "#/nowhere"}', '{"$ref": "https://example.org/schema"}',
     '{"pattern": "(", "type": "string"}', ""],
)
def test_a_schema_that_is_none_is_refused_in_one_line(
    schema: str, model: Model, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadRequest, match="JSON schema") as error:
        SamplerChain(model, SamplingParams(json_schema=schema), N_CTX)
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("schema", ["{}", '{"type": "object"}', '{"enum": ["a", 1, null]}'])
def test_a_schema_that_allows_much_is_one(schema: str, model: Model) -> None:
    SamplerChain(model, SamplingParams(json_schema=schema), N_CTX).close()


@pytest.mark.parametrize("entry", [(20_262, 1.0), (-1, 1.0), (5, float("nan")), (5, float("inf"))])
def test_a_bias_without_a_meaning_is_refused(entry: tuple[int, float], model: Model) -> None:
    with pytest.raises(BadRequest, match="logit bias"):
        SamplerChain(model, SamplingParams(logit_bias=(entry,)), N_CTX)


NO_END = tuple((token, float("-inf")) for token in (tiny.END_OF_TEXT, tiny.IM_END))


@pytest.mark.parametrize("params", [GREEDY, FREE, SamplingParams(top_k=5)])
def test_a_place_where_nothing_is_allowed_is_an_error(params: SamplingParams, model: Model) -> None:
    """The grammar is complete and its end is forbidden: one more accepted token would make ggml abort()."""
    chain = chain_of(model, replace(params, grammar='root ::= "a"', logit_bias=NO_END), [], [ord("a")])
    with pytest.raises(BadRequest, match="no token"):
        chain.distribution(LOGITS[0, 3.0])
    chain.close()


@pytest.mark.parametrize("params", [
    GREEDY, FREE, SamplingParams(top_k=5), SamplingParams(top_k=5, presence_penalty=1.0),
    SamplingParams(temperature=0, presence_penalty=1.0),
])
@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_model_that_computes_nonsense_is_an_error(params: SamplingParams, broken: float, model: Model) -> None:
    logits = LOGITS[0, 3.0].copy()
    logits[::7] = broken
    chain = SamplerChain(model, params, N_CTX)
    with pytest.raises(DecodeFailed, match="not a number"):
        chain.distribution(logits)
    chain.close()


def test_json_text_follows_its_schema(model: Model) -> None:
    """Drawn token by token from noise, the text is still what the schema says."""
    schema = {"type": "object", "properties": {"on": {"type": "boolean"}, "n": {"enum": [1, 22]}}, "required": ["on", "n"]}
    chain = SamplerChain(model, SamplingParams(json_schema=json.dumps(schema), top_k=0, temperature=1.0), N_CTX)
    rng, text = np.random.default_rng(0), b""
    while not (token := chain.distribution(random_logits(20_262, len(text))).draw(rng.random())) >= 256:
        text += bytes([token])
        chain.accept(token)
    assert set(json.loads(text)) == {"on", "n"}
    chain.close()
