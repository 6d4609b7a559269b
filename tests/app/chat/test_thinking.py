"""Thinking is told from the answer, also while it grows."""

from __future__ import annotations

import pytest

from app.chat.thinking import Split, split_thinking


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("plain", Split(None, "plain")),
        ("<think>hm</think>yes", Split("hm", "yes")),
        ("\n<think>\nhm\n</think>\n\nyes", Split("hm", "yes")),
        ("<think>hm", Split("hm", "", thought=False)),
        ("<reasoning>a</reasoning>b", Split("a", "b")),
        ("[THINK]a[/THINK]b", Split("a", "b")),
        ("opened by the template\n</think>\n\nyes", Split("opened by the template", "yes")),
        ("the tag `</think>` ends it", Split(None, "the tag `</think>` ends it")),
        ("say <think> here", Split(None, "say <think> here")),
        ("in a </think> sentence", Split(None, "in a </think> sentence")),
    ],
)
def test_split(text: str, split: Split) -> None:
    assert split_thinking(text) == split


def test_a_tag_that_is_only_begun_is_never_shown() -> None:
    text = "<think>so</think>yes"
    for end in range(1, len(text)):
        split = split_thinking(text[:end], growing=True)
        assert "<" not in split.answer + (split.thinking or "")


def test_nothing_is_lost_when_a_tag_never_comes() -> None:
    assert split_thinking("<thi", growing=True) == Split(None, "")
    assert split_thinking("<thi") == Split(None, "<thi")
