"""The prompt: attachments, completions and the editor, and the one place that decides what Enter does.

It knows no store and no engine. What it needs comes in (`history`, `context`, `tokens_counted`), what it finds goes out as
messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.timer import Timer
from textual.widgets import TextArea

from app.chat.attachments import quoted
from app.chat.conversation import Attachment
from app.sanitize import sanitize
from app.tui.commands import CommandProblem, Given, parse
from app.tui.widgets.completion import Completion
from app.tui.widgets.prompt_attachments import pack_unsent, unpack_unsent
from app.tui.widgets.prompt_chips import Chips
from app.tui.widgets.prompt_history import PromptHistory, RecentPrompts
from app.tui.widgets.prompt_input import FOLD_CHARACTERS, PromptInput

LOOK = 0.15
"""Seconds after the last change before the text is searched for files to attach."""
KEEP = 0.7
"""Seconds after the last change before the unsent text is handed out to be kept."""
PATIENCE = 1.0
"""Seconds to wait for token counts before a message goes out without them; the engine refuses what is too long."""


class Prompt(Vertical):
    """What the user writes in."""

    DEFAULT_CSS = """
    Prompt { height: auto; }
    """

    class Submitted(Message):
        """A message for the model. The prompt is empty again; `load` gives the text back if it could not be taken."""

        def __init__(self, text: str, attachments: tuple[Attachment, ...]) -> None:
            super().__init__()
            self.text = text
            self.attachments = attachments

    class CommandGiven(Message):
        """A `/` command; see commands.perform."""

        def __init__(self, given: Given) -> None:
            super().__init__()
            self.given = given

    class Changed(Message):
        """The text was changed a moment ago; `unsent` is what to keep of it, for `load_unsent`."""

        def __init__(self, unsent: str) -> None:
            super().__init__()
            self.unsent = unsent

    class CountTokens(Message):
        """The tokens of `text` are wanted; the answer goes to `tokens_counted` with the same tag."""

        def __init__(self, text: str, tag: str) -> None:
            super().__init__()
            self.text = text
            self.tag = tag

    def __init__(self, history: RecentPrompts, cwd: Path | None = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.busy = False
        """A reply is being written: messages wait, commands do not."""
        self._history = PromptHistory(history)
        self._cwd = cwd or Path.cwd()
        self._chips = Chips(self._cwd)
        self._delays: dict[str, Timer] = {}
        self._sending = False

    def compose(self) -> ComposeResult:
        editor = PromptInput()
        yield Completion(editor, self._cwd)
        yield self._chips
        yield editor

    @property
    def input(self) -> PromptInput:
        return self.query_one(PromptInput)

    @property
    def _completion(self) -> Completion:
        return self.query_one(Completion)

    # What the chat screen uses

    @property
    def text(self) -> str:
        return self.input.text

    @property
    def unsent(self) -> str:
        """What there is to keep; the reverse of `load_unsent`."""
        return pack_unsent(self.text, self._chips.attached)

    @property
    def context(self) -> int | None:
        """Tokens that one message may have; None while that is not known."""
        return self._chips.room

    @context.setter
    def context(self, tokens: int | None) -> None:
        self._chips.set_room(tokens)

    def tokens_counted(self, tag: str, count: int) -> None:
        """The answer to CountTokens."""
        self._chips.counted(tag, count)

    def load(self, text: str, attachments: Sequence[Attachment] = ()) -> None:
        """Show this message to be edited and sent again."""
        self._chips.attached.clear()
        self._chips.attached.keep(attachments)
        self._history.forget()
        self._show_text(text)

    def load_over(self, text: str, attachments: Sequence[Attachment] = ()) -> bool:
        """As `load`. What stands in the prompt and was not sent is set aside, for the key of earlier prompts; whether there
        was anything."""
        before = self.text.strip() if self.text != text else ""
        self._history.set_aside(before)
        self.load(text, attachments)
        return bool(before)

    def load_unsent(self, unsent: str) -> None:
        self.load(*unpack_unsent(unsent))

    def clear(self) -> None:
        self.load("")

    def begin(self, text: str) -> None:
        """Show the beginning of a command, to be gone on with."""
        self.load(text)
        self.focus()

    def focus(self, scroll_visible: bool = True) -> Prompt:
        self.input.focus(scroll_visible)
        return self

    # What is typed

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        event.stop()
        self._completion.update_candidates()
        self._later("look", LOOK, self._look)
        self._later("keep", KEEP, self._hand_out)

    def on_text_area_selection_changed(self, event: TextArea.SelectionChanged) -> None:
        event.stop()
        self._completion.update_candidates()

    def on_completion_taken(self, event: Completion.Taken) -> None:
        event.stop()
        self.focus()

    def on_prompt_input_long_paste(self, event: PromptInput.LongPaste) -> None:
        event.stop()
        row, column = self.input.selection.start
        before = self.input.document.get_line(row)[:column]
        self.input.put_in(("" if not before or before.endswith(" ") else " ") + self._chips.attached.paste(event.text) + " ")

    def on_prompt_input_asked(self, event: PromptInput.Asked) -> None:
        event.stop()
        match event.what:
            case "earlier" if self.input.completing:
                self._completion.move(-1)
            case "later" if self.input.completing:
                self._completion.move(+1)
            case "earlier":
                self._recall(self._history.earlier(self.text))
            case "later":
                self._recall(self._history.later(self.text))
            case "complete":
                self._completion.take()
            case "close":
                self._completion.close()
            case "drop":
                self._chips.leave_out_last()

    def _recall(self, text: str | None) -> None:
        if text is not None:
            self._show_text(text)

    def _show_text(self, text: str) -> None:
        if len(text) > 2 * FOLD_CHARACTERS:  # a long text of an old message
            text = self._chips.attached.paste(text)
        self.input.load_text(sanitize(text))
        self.input.move_cursor(self.input.document.end)
        self._look()

    def _later(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        if name in self._delays:
            self._delays[name].stop()
        self._delays[name] = self.set_timer(seconds, call)

    def _hand_out(self) -> None:
        self.post_message(self.Changed(self.unsent))

    def _look(self) -> None:
        self._chips.typing = self._completion.typing
        self._chips.look(self.text)

    def on_chips_count(self, event: Chips.Count) -> None:
        event.stop()
        self.post_message(self.CountTokens(event.text, event.tag))

    def on_chips_counted(self, event: Chips.Counted) -> None:
        event.stop()
        if self._sending and not self._chips.uncounted:
            self._submit()

    # Enter

    def on_prompt_input_send(self, event: PromptInput.Send) -> None:
        event.stop()
        completion = self._completion
        if completion.would_change:
            taken = completion.take()
            if taken is None or taken.goes_on or not taken.insert.startswith("/"):
                return
        completion.close()
        try:
            given = parse(self.text)
        except CommandProblem as problem:
            self._say(str(problem))
            return
        if given is not None:
            self._command(given)
        elif self.busy:
            self._say("a reply is being written; stop it first, or wait")
        elif self.text.strip() and not self._sending:
            self._sending = True
            self._chips.look(self.text, self._send)

    def _command(self, given: Given) -> None:
        if given.command.action == "attach":
            self.begin(quoted(given.argument.strip('"').removeprefix("@")) + " ")
            return
        self.clear()
        self.post_message(self.CommandGiven(given))

    def _send(self, text: str) -> None:
        """What is attached to `text` has been read. It has to fit: its tokens are waited for, for a moment."""
        if text != self.text:
            self._chips.look(self.text, self._send)  # typed on meanwhile: what is there now is sent
        elif self._chips.room is None or not self._chips.uncounted:
            self._submit()
        else:
            self._later("send", PATIENCE, self._submit)

    def _submit(self) -> None:
        if not self._sending:
            return
        self._sending = False
        if problem := self._chips.problem:
            self._say(problem)
            return
        text = self.text
        message = self.Submitted(text[1:] if text.startswith("//") else text, tuple(self._chips.attached.attachments))
        self.clear()
        self._hand_out()
        self.post_message(message)

    def _say(self, line: str) -> None:
        self.app.notify(line, severity="warning", markup=False)
