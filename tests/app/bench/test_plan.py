from __future__ import annotations

from app.bench.pace import Pace, in_words
from app.bench.plan import Configuration, Variations, configurations, in_turns


def names(wanted: Variations) -> list[str]:
    return [config.name for config in configurations(wanted)]


def test_the_example_of_the_docstring() -> None:
    wanted = Variations(("plain", "auto", "fixed:4"), drafts=("a", "b"), max_tokens=(128, 512))
    assert names(wanted) == ["plain", "auto", "fixed:4", "auto@draft=b", "plain@max-tokens=512", "auto@max-tokens=512"]


def test_the_baseline_comes_first_and_is_always_there() -> None:
    assert names(Variations(("auto", "plain"))) == ["plain", "auto"]
    assert names(Variations(("fixed:3",))) == ["plain", "fixed:3"]
    assert names(Variations(("plain",), targets=("a", "b"), drafts=("c", "d"))) == ["plain", "plain@target=b"]


def test_a_variation_differs_from_the_base_in_one_thing() -> None:
    wanted = Variations(
        ("plain", "auto"), targets=("t", "u"), drafts=("d", "e"), max_tokens=(10, 20), batch=(64, 128)
    )
    base = {"plain": ("t", None, 10, 64), "auto": ("t", "d", 10, 64)}
    for config in configurations(wanted):
        mine = (config.target, config.draft, config.max_tokens, config.batch)
        assert sum(a != b for a, b in zip(mine, base[config.mode], strict=True)) == bool(config.varied), config


def test_no_draft_is_loaded_where_none_is_used() -> None:
    found = {config.mode: config.draft for config in configurations(Variations(("plain", "ngram", "draft"), drafts=("d",)))}
    assert found == {"plain": None, "ngram": None, "draft": "d"}


def test_a_draft_is_varied_in_a_mode_that_uses_one() -> None:
    assert names(Variations(("plain", "ngram", "fixed:2"), drafts=("a", "b"))) == ["plain", "ngram", "fixed:2", "fixed:2@draft=b"]


def test_every_baseline_is_measured_before_what_is_compared_with_it() -> None:
    seen: set[str] = set()
    for config in configurations(Variations(("plain", "auto"), (None, "u"), (None, "e"), (10, 20), (None, 64))):
        assert config.baseline is None or config.baseline in seen
        seen.add(config.name)


def test_the_name_of_a_path_is_the_files_unless_two_share_it() -> None:
    assert names(Variations(targets=("a.gguf", "x/b.gguf")))[-1] == "auto@target=b"
    assert names(Variations(targets=("y/b.gguf", "x/b.gguf")))[-1] == "auto@target=x/b.gguf"
    assert names(Variations(targets=(None, "qwen2.5-7b")))[-1] == "auto@target=qwen2.5-7b"


def test_another_targets_plain_speed_is_compared_with_the_bases() -> None:
    assert Configuration("plain", "u", varied="target=u").baseline == "plain"
    assert Configuration("auto", "u", varied="target=u").baseline == "plain@target=u"
    assert Configuration("auto", draft="e", varied="draft=e").baseline == "plain"
    assert Configuration("plain").baseline is None


def test_prompts_take_turns_by_category() -> None:
    assert in_turns(["a", "a", "a", "b", "c", "c"]) == [0, 3, 4, 1, 5, 2]


def test_time_left_counts_each_category_with_its_own_time() -> None:
    pace = Pace()
    assert pace.left(["a"]) is None
    pace.add("a", 1.0)
    pace.add("a", 3.0)
    pace.add("b", 10.0)
    assert pace.left(["a", "b", "b"]) == 22.0
    assert pace.left(["new"]) == 6.0  # as the others on average
    assert [in_words(seconds) for seconds in (None, 0.2, 59, 150, 7500)] == ["", "1 s left", "59 s left", "2 min left", "2 h 05 min left"]
