"""Tables fit any width."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from app.tui.markdown import Table, parse_blocks
from app.tui.markdown.table_layout import lay_out

WIDE = "| name | 说明 | n |\n|---|:-:|--:|\n| first thing of all | 你好世界你好世界 and more words | 1 |\n| 👍 | x | 22 |\n"


def table(text: str = WIDE) -> Table:
    block = parse_blocks(text)[0]
    assert isinstance(block, Table)
    return block


@pytest.mark.parametrize("width", [8, 14, 20, 33, 60, 120])
def test_no_line_is_wider_than_the_room(width: int) -> None:
    shown = lay_out(table(), width)
    if width >= 20:
        assert max(cell_len(line) for line in shown.plain.split("\n")) <= width
    for word in ("first", "thing", "你好", "words", "22", "👍"):
        assert word in shown.plain.replace("\n", "")


def test_columns_stand_below_each_other() -> None:
    lines = lay_out(table(), 120).plain.split("\n")
    assert len({cell_len(line.split("│")[0]) for line in lines if "│" in line}) == 1
    assert lines[1].count("┼") == 2


def test_alignment() -> None:
    lines = lay_out(table("|a|b|\n|--|--:|\n|long|long|\n|1|2|\n"), 40).plain.split("\n")
    assert lines[-1] == "1    │    2"


def test_without_room_for_columns_cells_become_lines() -> None:
    assert lay_out(table("|a|b|\n|-|-|\n|1|2|\n"), 7).plain == "a: 1\nb: 2"
