from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sanitize import Sanitizer, sanitize

RISKY = st.text(alphabet=st.sampled_from("\x1b[]P\\;0?mHA\x07\x9b\x9d\x9c\x18\r\n\t \x7fq🦊é"), max_size=40)


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("plain text, é, 🦊\n\tindented", "plain text, é, 🦊\n\tindented"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hgone", "gone"),
        ("\x1b[?25lhidden cursor", "hidden cursor"),
        ("\x1b]0;new title\x07text", "text"),
        ("\x1b]52;c;aGk=\x1b\\text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred\x9d0;title\x9ctext", "redtext"),
        ("\x1bP1$tq\x1b\\dcs", "dcs"),
        ("\x1b(Bcharset", "charset"),
        ("\x1bcreset", "reset"),
        ("over\rwrite\b\x00\x7f", "overwrite"),
        ("line\r\nline", "line\nline"),
        ("\x1b]0;never ended\nnext line", "\nnext line"),
        ("\x1b[31\nnext", "\nnext"),
        ("\x1b[31é", "é"),
        ("\x1b\x1b[1mbold", "bold"),
        ("cut off \x1b[3", "cut off "),
        ("invoice\u202etxt.exe\u202c", "invoicetxt.exe"),
        ("\u202a\u202b\u202d\u2066\u2067\u2068a\u2069", "a"),
        ("\x1b]0;title\u202e\x07text", "text"),
        ("שלום עולם, مرحبا\u200f (LRM\u200e)", "שלום עולם, مرحبا\u200f (LRM\u200e)"),
    ],
)
def test_sequences_vanish_and_text_stays(raw: str, clean: str) -> None:
    assert sanitize(raw) == clean


@given(RISKY, st.lists(st.integers(0, 40), max_size=5))
def test_where_the_deltas_are_cut_makes_no_difference(text: str, cuts: list[int]) -> None:
    stream, at, pieces = Sanitizer(), 0, []
    for cut in [*sorted(cuts), len(text)]:
        pieces.append(stream.feed(text[at:cut]))
        at = max(at, cut)
    assert "".join(pieces) == sanitize(text)


@given(st.text())
def test_no_control_character_ever_leaves(text: str) -> None:
    kept = sanitize(text)
    assert not [c for c in kept if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160]


@given(st.text(alphabet=st.characters(exclude_categories=("Cc",))))
def test_text_without_control_characters_is_untouched(text: str) -> None:
    assert sanitize(text) == text
