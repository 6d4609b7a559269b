"""Completing the word at the prompt's cursor: the list above it, and what is in the list.

The list never has the focus; the prompt moves its highlight. Folders are read in a thread, and what comes late is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text
from textual import work
from textual.geometry import Offset
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.tui.widgets.completion_sources import Candidate, Word, commands, paths, word_at
from app.tui.widgets.prompt_input import PromptInput

ROWS = 8


class Completion(OptionList, can_focus=False):
    """Hidden while it has nothing to offer."""

    DEFAULT_CSS = f"""
    Completion {{
        display: none;
        overlay: screen;
        constrain: inside none;
        height: auto;
        max-height: {ROWS + 2};
        width: 1fr;
        max-width: 88;
        border: round $border;
        padding: 0 1;
        background: $surface;
        scrollbar-size-vertical: 1;
        & > .option-list--option-highlighted {{
            color: $block-cursor-foreground;
            background: $block-cursor-background;
            text-style: $block-cursor-text-style;
        }}
    }}
    """

    class Taken(Message):
        """A candidate was clicked and is in the text now."""

    class PathsFound(Message):
        """Read in the thread."""

        def __init__(self, word: Word, found: list[Candidate]) -> None:
            super().__init__()
            self.word = word
            self.found = found

    def __init__(self, editor: PromptInput, cwd: Path) -> None:
        super().__init__(markup=False)
        self._editor = editor
        self._cwd = cwd
        self._candidates: Sequence[Candidate] = ()
        self._closed_at: tuple[int, int] | None = None
        """Where the word stands whose list the user closed, or that was completed."""

    @property
    def candidate(self) -> Candidate | None:
        """The highlighted one, None while the list is closed."""
        return self._candidates[self.highlighted] if self.display and self.highlighted is not None else None

    @property
    def typing(self) -> str | None:
        """The path that is just being completed."""
        return word.typed if self.display and (word := self._word()) is not None else None

    @property
    def would_change(self) -> bool:
        """Whether taking the candidate would change more than a space at the end."""
        word, candidate = self._word(), self.candidate
        if word is None or candidate is None:
            return False
        row, column = self._editor.cursor_location
        return self._editor.document.get_line(row)[word.start : column] != candidate.insert.rstrip()

    def update_candidates(self) -> None:
        """Offer what completes the word at the cursor."""
        word = self._word() if self._editor.has_focus else None
        if word is None:
            self._closed_at = None
            self._offer([])
        elif self._place(word) == self._closed_at:
            self._offer([])
        elif word.kind == "command":
            self._offer(commands(word.typed))
        else:
            self._look_for_paths(word)

    def close(self) -> None:
        """Offer nothing more for this word."""
        word = self._word()
        self._closed_at = None if word is None else self._place(word)
        self._offer([])

    def move(self, rows: int) -> None:
        """Move the highlight, around the ends."""
        if self._candidates:
            self.highlighted = ((self.highlighted or 0) + rows) % len(self._candidates)

    def take(self) -> Candidate | None:
        """Put the highlighted candidate in place of the word at the cursor."""
        word, candidate = self._word(), self.candidate
        if word is None or candidate is None:
            return None
        row, column = self._editor.cursor_location
        self._editor.replace(candidate.insert, (row, word.start), (row, column), maintain_selection_offset=False)
        self._closed_at = None if candidate.goes_on else self._place(word)
        self._offer([])
        return candidate

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.highlighted = event.option_index
        self.take()
        self.post_message(self.Taken())

    def _word(self) -> Word | None:
        if not self._editor.selection.is_empty:
            return None
        row, column = self._editor.cursor_location
        return word_at(self._editor.document.get_line(row), column, first_line=row == 0)

    def _place(self, word: Word) -> tuple[int, int]:
        return (self._editor.cursor_location[0], word.start)

    @work(thread=True, exclusive=True)
    def _look_for_paths(self, word: Word) -> None:
        self.post_message(self.PathsFound(word, paths(word.typed, self._cwd)))

    def on_completion_paths_found(self, event: PathsFound) -> None:
        event.stop()
        if self._word() == event.word and self._place(event.word) != self._closed_at:
            self._offer(event.found)

    def _offer(self, candidates: Sequence[Candidate]) -> None:
        """Show these above the prompt, the first one highlighted; nothing closes the list."""
        if not candidates and not self.display:
            return
        self._candidates = candidates
        self._editor.completing = bool(candidates)
        self.display = bool(candidates)
        self.clear_options()
        if candidates:
            width = max(len(candidate.label) for candidate in candidates)
            self.add_options(Option(_shown(candidate, width)) for candidate in candidates)
            self.highlighted = 0
            self.styles.offset = Offset(0, -min(len(candidates), ROWS) - 2)


def _shown(candidate: Candidate, width: int) -> Text:
    """One row: what it is, and in words."""
    label = candidate.label.ljust(width) if candidate.words else candidate.label
    return Text.assemble(label, ("  " + candidate.words, "dim") if candidate.words else "", no_wrap=True, overflow="ellipsis")
