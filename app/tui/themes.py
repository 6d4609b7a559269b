"""Themes: dark, light, high contrast and no colour. Chosen by the settings, and by NO_COLOR and TERM=dumb.

No colour is really monochrome: not one colour code reaches the terminal. What colour says elsewhere is said there by
reverse video (the cursor, a selection), bold and underline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import Theme

from app.sanitize import without_controls

DARK, LIGHT, HIGH_CONTRAST, NO_COLOUR = "dark", "light", "high-contrast", "no-colour"

_MARKED = "ansi_white"
"""In the monochrome theme the background of whatever has to stand out; becomes reverse video."""
_MARKED_NUMBER = 7

THEMES: dict[str, Theme] = {
    theme.name: theme
    for theme in (
        Theme(
            name=DARK, primary="#5fa8d3", secondary="#7d8fb3", accent="#e0a458", warning="#e0a458", error="#e5737f",
            success="#7fc98f", foreground="#dde3ea", background="#14171c", surface="#1b1f26", panel="#232932",
            variables={
                "border": "#5fa8d3", "border-blurred": "#333b47", "footer-key-foreground": "#e0a458",
                "block-cursor-background": "#2f5d7c", "block-cursor-foreground": "#ffffff",
                "origin-target": "#dde3ea", "origin-model": "#7fc98f", "origin-ngram": "#e0a458",
            },
        ),
        Theme(
            name=LIGHT, dark=False, primary="#1f6f9f", secondary="#56688a", accent="#9a5b00", warning="#9a5b00",
            error="#b3273a", success="#1f7a3a", foreground="#1d232b", background="#f7f7f4", surface="#eeeeea",
            panel="#e4e4de",
            variables={
                "border": "#1f6f9f", "border-blurred": "#c4c4bc", "footer-key-foreground": "#9a5b00",
                "block-cursor-background": "#1f6f9f", "block-cursor-foreground": "#ffffff",
                "origin-target": "#1d232b", "origin-model": "#1f7a3a", "origin-ngram": "#9a5b00",
            },
        ),
        Theme(
            name=HIGH_CONTRAST, primary="#00d7ff", secondary="#ffffff", accent="#ffff00", warning="#ffff00",
            error="#ff6b6b", success="#00ff5f", foreground="#ffffff", background="#000000", surface="#000000",
            panel="#000000", text_alpha=1.0,
            variables={
                "border": "#ffff00", "border-blurred": "#ffffff", "footer-key-foreground": "#ffff00",
                "block-cursor-background": "#ffff00", "block-cursor-foreground": "#000000",
                "button-color-foreground": "#000000",
                "text": "#ffffff", "text-muted": "#ffffff", "text-disabled": "#d0d0d0", "foreground-muted": "#ffffff",
                "input-cursor-background": "#ffff00", "input-cursor-foreground": "#000000",
                "input-selection-background": "#ffff00", "input-selection-foreground": "#000000",
                "scrollbar": "#ffffff", "scrollbar-background": "#000000",
                "origin-target": "#ffffff", "origin-model": "#00ff5f", "origin-ngram": "#ffff00",
            },
        ),
        Theme(
            name=NO_COLOUR, ansi=True, primary="ansi_default", secondary="ansi_default", warning="ansi_default",
            error="ansi_default", success="ansi_default", accent="ansi_default", foreground="ansi_default",
            background="ansi_default", surface="ansi_default", panel="ansi_default", boost="ansi_default",
            variables={
                "ansi-background": "ansi_default", "ansi-foreground": "ansi_default",
                "border": "ansi_default", "border-blurred": "ansi_default", "footer-key-foreground": "ansi_default",
                "block-cursor-background": _MARKED, "block-cursor-foreground": "ansi_default",
                "block-cursor-text-style": "bold", "block-cursor-blurred-text-style": "bold underline",
                "block-hover-background": "ansi_default", "input-cursor-background": "ansi_default",
                "input-selection-background": _MARKED, "input-cursor-text-style": "reverse",
                "screen-selection-background": _MARKED, "screen-selection-foreground": "ansi_default",
                "scrollbar": _MARKED, "scrollbar-hover": _MARKED, "scrollbar-active": _MARKED,
                "scrollbar-background": "ansi_default", "scrollbar-background-hover": "ansi_default",
                "scrollbar-background-active": "ansi_default", "link-color": "ansi_default",
                "markdown-h1-color": "ansi_default", "markdown-h2-color": "ansi_default",
                "origin-target": "ansi_default", "origin-model": "ansi_default", "origin-ngram": "ansi_default",
            },
        ),
    )
}


_ORIGINS = {"origin-target": "#8a8a8a", "origin-model": "#3fa35f", "origin-ngram": "#c07a20"}
"""What Textual's own themes do not have, legible on light and dark."""


class NoColours(LineFilter):
    """Takes every colour out of what is drawn; a marked background becomes reverse video."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(text, style and _colourless(style), control) for text, style, control in segments]


class Harmless(LineFilter):
    """Takes control characters out of what is drawn, whatever way they came: a file's name, an error that quotes one."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(segment.control or without_controls(segment.text) is segment.text for segment in segments):
            return segments
        return [s if s.control else Segment(without_controls(s.text), s.style) for s in segments]


_NO_COLOURS, _HARMLESS = NoColours(), Harmless()


def _colourless(style: Style) -> Style:
    marked = style.bgcolor is not None and style.bgcolor.number == _MARKED_NUMBER
    plain = style.without_color
    return plain + Style(reverse=True) if marked and not style.reverse else plain


def wanted_theme(theme: str, environ: Mapping[str, str]) -> str:
    """The theme to start with: no colour where the environment asks for it, else the one of the settings."""
    asks = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
    return NO_COLOUR if asks else theme


def apply_theme(app: App[Any], theme: str, environ: Mapping[str, str]) -> str | None:
    """Register our themes, complete Textual's, and take the wanted one. One line where there is no such theme; dark stands in for it."""
    for other in app.available_themes.values():
        app.register_theme(replace(other, variables={**_ORIGINS, **other.variables}))
    for ours in THEMES.values():
        app.register_theme(ours)
    wanted = wanted_theme(theme, environ)
    if app.get_theme(wanted) is None:
        app.theme = DARK
        return f"there is no theme {theme!r}; {', '.join(THEMES)} come with Paceline"
    app.theme = wanted
    return None


def line_filters(app: App[Any], filters: Sequence[LineFilter]) -> Sequence[LineFilter]:
    """What App.get_line_filters returns, and ours: no control character is ever drawn, and no colour where the theme has none.
    Always the same objects: a drawn line is remembered by its filter."""
    return [*filters, _HARMLESS, _NO_COLOURS] if app.theme == NO_COLOUR else [*filters, _HARMLESS]
