"""Markdown to flat blocks: nothing is lost, nothing is markup, links are shown in full."""

from __future__ import annotations

import pytest

from app.tui.markdown import Code, Prose, Rule, Table, parse_blocks


def prose(text: str) -> list[Prose]:
    blocks = parse_blocks(text)
    assert all(isinstance(block, Prose) for block in blocks)
    return [block for block in blocks if isinstance(block, Prose)]


@pytest.mark.parametrize("text", ["[b]x[/b]", "[TODO] plan", "[/b]", "<div>hi</div>", "a <b> c", "[link=x]y[/link]", "&amp;amp;"])
def test_what_looks_like_markup_or_html_is_shown_as_it_is(text: str) -> None:
    expected = "&amp;" if text == "&amp;amp;" else text  # entities are Markdown
    assert prose(text)[0].content.plain == expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[docs](https://docs.python.org/3/)", "docs (https://docs.python.org/3/)"),
        ("<https://a.b/c>", "https://a.b/c"),
        ("see https://a.b/c?d=1.", "see https://a.b/c?d=1."),
        ("[https://a.b](https://a.b)", "https://a.b"),
        ("[https://good.org](https://evil.org)", "https://good.org (https://evil.org)"),
        ("![a cat](http://x/y.png)", "[image: a cat] (http://x/y.png)"),
    ],
)
def test_links_show_their_address(text: str, shown: str) -> None:
    assert prose(text)[0].content.plain == shown


def test_lists_hang_and_number() -> None:
    blocks = prose("3. three\n4. four\n   - deep\n     text\n")
    assert [(block.first, block.rest, block.content.plain) for block in blocks] == [
        ("3. ", "   ", "three"), ("4. ", "   ", "four"), ("   ◦ ", "     ", "deep\ntext"),
    ]


def test_quotes_have_a_bar_on_every_line() -> None:
    block = prose("> one\n> two")[0]
    assert (block.first, block.rest) == ("▎ ", "▎ ")


def test_an_empty_item_still_shows_its_bullet() -> None:
    assert [block.first for block in prose("- a\n-")] == ["• ", "• "]


def test_code_tables_and_rules() -> None:
    code, table, rule = parse_blocks("```py title=x\nx = [1]\n\n```\n|a|b|\n|:-|-:|\n|1|**2**|\n\n---\n")
    assert isinstance(code, Code)
    assert (code.language, code.code, code.gap) == ("py", "x = [1]\n", False)
    assert isinstance(table, Table)
    assert [[cell.plain for cell in row] for row in table.rows] == [["a", "b"], ["1", "2"]]
    assert table.aligns == ("left", "right")
    assert isinstance(rule, Rule)


def test_code_in_a_list_is_indented_with_it() -> None:
    code = parse_blocks("- see\n\n  ```\n  x\n  ```\n")[1]
    assert isinstance(code, Code)
    assert (code.code, code.indent) == ("x", 2)


def test_a_single_line_break_stays() -> None:
    assert prose("Roses are red\nViolets are blue")[0].content.plain == "Roses are red\nViolets are blue"


def test_styles_are_marked() -> None:
    content = prose("**b** *i* ~~s~~ `c`")[0].content
    assert content.plain == "b i s c"
    assert [str(span.style) for span in content.spans][:3] == ["bold", "italic", "strike"]
