"""Rows of a form over a pydantic model: a label, an editor, and the reason right below where the value cannot be.

A value is checked as it is typed, by the model itself; empty means "not said".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ValidationError
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Checkbox, Input, Label, Select, TextArea

from app.settings import describe

NARROW: list[tuple[int, str]] | None = [(0, "-narrow"), (76, "-roomy")]
"""For a screen's HORIZONTAL_BREAKPOINTS: from how many columns on there is room for hints."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One field of the model, as it is shown."""

    name: str
    label: str
    hint: str = ""
    """What an empty value means, or what may stand there."""
    kind: Literal["line", "text", "lines", "choice", "switch"] = "line"
    choices: Sequence[tuple[str, str]] = ()
    """For a choice: what is shown, and the value."""
    empty: str | None = None
    """What nothing typed means."""


class Tick(Checkbox):
    """A checkbox whose state is told without colour."""

    DEFAULT_CSS = """
    Tick, Tick.-on, Tick:focus {
        & > .toggle--button { background: $foreground 70%; color: $background; text-style: bold; }
        &:ansi > .toggle--button { background: ansi_default; color: ansi_default; }
    }
    """

    def __init__(self, label: str, value: bool = False, *, id: str | None = None) -> None:
        super().__init__(Content(label), value, compact=True, id=id)
        self._mark()

    def watch_value(self) -> None:
        self._mark()
        super().watch_value()

    def _mark(self) -> None:
        self.BUTTON_INNER = "x" if self.value else " "


class FormRow(Vertical):
    """A label, the editor, and what is wrong."""

    DEFAULT_CSS = """
    FormRow {
        height: auto;
        & > Horizontal { height: auto; }
        .label { width: 22; color: $text-muted; }
        Input, Select, TextArea, Checkbox { width: 1fr; }
        Input, TextArea {
            background: $panel;
            border: none;
            border-left: outer $border-blurred;
            &:focus { border: none; border-left: outer $border; }
        }
        Input { height: 1; padding: 0 1; }
        TextArea { height: auto; min-height: 2; max-height: 8; padding: 0 1; }
        .hint { width: 33; color: $text-muted; padding: 0 0 0 1; }
        .problem { display: none; width: 1fr; color: $text-error; text-style: bold; padding: 0 0 0 22; }
        &.-wrong .problem { display: block; }
        &.-wrong .label { color: $text-error; text-style: bold; }
    }
    """

    def __init__(self, entry: Entry, value: Any) -> None:
        super().__init__()
        self.entry = entry
        self._value = value

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Label(self.entry.label, classes="label", markup=False)
            yield self._editor()
            if self.entry.hint and self.entry.kind != "switch":
                yield Label(self.entry.hint, classes="hint", markup=False)
        yield Label("", classes="problem", markup=False)

    def _editor(self) -> Input | TextArea | Select[str] | Checkbox:
        value = self._value
        match self.entry.kind:
            case "switch":
                return Tick(self.entry.hint, bool(value))
            case "choice":
                allowed = any(value == choice for _, choice in self.entry.choices)
                start = {"value": value} if allowed else {}
                return Select(self.entry.choices, allow_blank=not allowed, compact=True, **start)
            case "text" | "lines":
                text = "\n".join(value) if self.entry.kind == "lines" else value or ""
                editor = TextArea(text, show_line_numbers=False, highlight_cursor_line=False)
                editor.cursor_blink = False
                return editor
            case _:
                line = Input("" if value is None else f"{value:g}" if isinstance(value, float) else str(value))
                line.cursor_blink = False
                return line

    @property
    def value(self) -> Any:
        """As the model takes it; None where nothing is said."""
        match self.entry.kind:
            case "switch":
                return self.query_one(Checkbox).value
            case "choice":
                chosen = self.query_one(Select).value
                return chosen if isinstance(chosen, str) else self._value
            case "text":
                return self.query_one(TextArea).text.strip() or None
            case "lines":
                return tuple(line for line in self.query_one(TextArea).text.split("\n") if line)
            case _:
                return self.query_one(Input).value.strip() or self.entry.empty

    def complain(self, problem: str | None) -> None:
        """Show what is wrong, or that nothing is."""
        self.set_class(problem is not None, "-wrong")
        self.query_one(".problem", Label).update(problem or "")


class Form(Vertical):
    """The rows for some fields of a model."""

    DEFAULT_CSS = """
    Form { height: auto; padding: 0 1; }
    """

    def __init__(self, schema: type[BaseModel], entries: Sequence[Entry], start: Mapping[str, Any]) -> None:
        super().__init__()
        self._schema = schema
        self._entries = entries
        self._start = start

    def compose(self) -> ComposeResult:
        for entry in self._entries:
            yield FormRow(entry, self._start[entry.name])

    def values(self) -> dict[str, Any] | None:
        """The fields' values; None if one is wrong, which has the focus then."""
        rows = list(self.query(FormRow))
        wrong = [row for row in rows if not self._check(row)]
        if wrong:
            wrong[0].query("Input, TextArea, Select, Checkbox").first().focus()
            return None
        return {row.entry.name: row.value for row in rows}

    def on_input_changed(self, event: Input.Changed) -> None:
        self._changed(event.input)

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        self._changed(event.text_area)

    def _changed(self, editor: Input | TextArea) -> None:
        row = next(node for node in editor.ancestors if isinstance(node, FormRow))
        self._check(row)

    def _check(self, row: FormRow) -> bool:
        """Whether the model takes this row's value; the row says why not."""
        name = row.entry.name
        try:
            self._schema.model_validate({**self._start, name: row.value})
        except ValidationError as error:
            field, reason = describe(error)
            if field.split(".")[0] == name:
                row.complain(reason)
                return False
        row.complain(None)
        return True
