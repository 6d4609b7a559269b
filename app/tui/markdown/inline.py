"""The inside of a line: markdown-it's inline tokens to styled content. Links show their address in full.

Styles name theme colours but never say anything by colour alone. HTML is text like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content, Span
from textual.style import Style

if TYPE_CHECKING:
    from markdown_it.token import Token

_STYLES = {"em_open": "italic", "strong_open": "bold", "s_open": "strike"}
CODE_STYLE = "bold $text-accent"
LINK_STYLE = "underline $text-primary"


def inline_content(token: Token) -> Content:
    """The text of an `inline` token. A single line break stays one: chat models mean it."""
    parts: list[str] = []
    spans: list[Span] = []
    opened: list[tuple[str | Style | None, int]] = []
    links: list[tuple[str, int]] = []
    position = 0

    def add(text: str, style: str = "") -> None:
        nonlocal position
        if style:
            spans.append(Span(position, position + len(text), style))
        parts.append(text)
        position += len(text)

    for child in token.children or ():
        match child.type:
            case "text":
                add(child.content)
            case "softbreak" | "hardbreak":
                add("\n")
            case "code_inline":
                add(child.content, CODE_STYLE)
            case "em_open" | "strong_open" | "s_open":
                opened.append((_STYLES[child.type], position))
            case "em_close" | "strong_close" | "s_close" if opened:
                style, start = opened.pop()
                if style is not None:
                    spans.append(Span(start, position, style))
            case "link_open":
                links.append((str(child.attrs.get("href", "")), position))
            case "link_close" if links:
                href, start = links.pop()
                shown = "".join(parts)[start:]
                if href and not _says(shown, href):
                    add(f" ({href})")
                spans.append(Span(start, position, LINK_STYLE))
                spans.append(Span(start, position, Style.from_meta({"@click": f"link({href!r})"})))
            case "image":
                add(f"[image: {child.content}] ({child.attrs.get('src', '')})" if child.content else f"[image] ({child.attrs.get('src', '')})")
            case _:
                add(child.content)
    return Content("".join(parts), spans=spans)


def _says(shown: str, href: str) -> bool:
    """Whether the link's text already is its address, give or take the scheme."""
    return href.rstrip("/") in {
        shown.rstrip("/"), f"http://{shown.rstrip('/')}", f"https://{shown.rstrip('/')}", f"mailto:{shown}",
    }
