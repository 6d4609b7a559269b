"""Text that grows in pieces ends in the blocks of the whole text, and what is settled is never read again."""

from __future__ import annotations

import random

import pytest

from app.tui.markdown import Block, Code, GrowingMarkdown, parse_blocks

DOCUMENT = """Hello **bold** and `code` [x](http://a.b/c?d=e) <div>hi</div> [b]x[/b]

# Head

1. one
2. two
   more
   - nested a
   - nested b
3. three

> quote
> more
> - item

```python
def f():
    return "```"
```
after

| a | b |
|---|:-:|
| 1 | 2 |

- a
- b

* * *

1. x
1. y
1. z

term
====

- loose

- list

~~~
no language
"""


def same(a: list[Block], b: list[Block]) -> bool:
    return len(a) == len(b) and all(one.same(other) for one, other in zip(a, b, strict=True))


def grown(text: str, generator: random.Random, longest: int) -> GrowingMarkdown:
    growing, at = GrowingMarkdown(), 0
    while at < len(text):
        size = generator.randint(1, longest)
        growing.append(text[at : at + size])
        at += size
    return growing


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("longest", [1, 7, 80])
def test_however_it_is_cut_the_blocks_are_those_of_the_whole(seed: int, longest: int) -> None:
    growing = grown(DOCUMENT + "```", random.Random(seed), longest)
    whole = parse_blocks(DOCUMENT + "```")
    last = growing.blocks[-1]
    assert isinstance(last, Code)
    assert same(growing.blocks[:-1], whole[:-1])
    assert last.code == "no language\n```"


def test_settled_blocks_stay_as_they_are() -> None:
    growing = GrowingMarkdown()
    seen: list[Block] = []
    for char in DOCUMENT:
        growing.append(char)
        settled = growing.blocks[: growing.settled]
        assert same(settled[: len(seen)], seen)
        seen = settled
    assert growing.settled > 12


@pytest.mark.parametrize(
    ("line", "bound"), [("word " * 8 + "\n\n", 200), ("- item with words\n", 200), ("x = 1  # code\n", 60)], ids=["paragraphs", "list", "code"]
)
def test_what_is_read_again_does_not_grow_with_the_text(line: str, bound: int) -> None:
    """The unsettled rest is what an append parses; it must not depend on what stands before."""
    growing = GrowingMarkdown()
    if "code" in line:
        growing.append("```python\n")
    for _ in range(400):
        growing.append(line)
        assert len(growing._tail) <= bound


def test_numbers_go_on_behind_what_is_settled() -> None:
    growing = GrowingMarkdown()
    for number in range(30):
        growing.append(f"1. item {number}\n")
    firsts = [block.first for block in growing.blocks]  # type: ignore[union-attr]
    assert firsts == [f"{number}. " for number in range(1, 31)]
