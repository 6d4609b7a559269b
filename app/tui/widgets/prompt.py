"""The prompt: attachments, completions and the editor, and the one place that decides what Enter does.

It knows no store and no engine. What it needs comes in (`history`, `context`, `tokens_counted`), what it finds goes out as
messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.timer import Timer
from textual.widgets import TextArea

from app.chat.attachments import quoted, too_long
from app.chat.conversation import Attachment
from app.sanitize import sanitize
from app.tui.commands import CommandProblem, Given, parse
from app.tui.keys import shown_key
from app.tui.widgets.completion import Completion
from app.tui.widgets.prompt_attachments import Attached, Record, gathered, pack_unsent, unpack_unsent
from app.tui.widgets.prompt_chips import Chips
from app.tui.widgets.prompt_history import PromptHistory, RecentPrompts
from app.tui.widgets.prompt_input import FOLD_CHARACTERS, PromptInput

LOOK = 0.15
"""Seconds after the last change before the text is searched for files to attach."""
KEEP = 0.7
"""Seconds after the last change before the unsent text is handed out to be kept."""
PATIENCE = 1.0
"""Seconds to wait for token counts before a message goes out without them; the engine refuses what is too long."""
TAG = "prompt:"


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

    class Gathered(Message):
        """Read in a thread: what the text brings along."""

        def __init__(self, text: str, found: dict[str, Record], then_send: bool) -> None:
            super().__init__()
            self.text = text
            self.found = found
            self.then_send = then_send

    def __init__(self, history: RecentPrompts, cwd: Path | None = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.busy = False
        """A reply is being written: messages wait, commands do not."""
        self._attached = Attached(cwd or Path.cwd())
        self._history = PromptHistory(history)
        self._room: int | None = None
        self._counting: dict[str, Attachment] = {}
        self._delays: dict[str, Timer] = {}
        self._sending = False

    def compose(self) -> ComposeResult:
        editor = PromptInput()
        yield Completion(editor, self._attached.cwd)
        yield Chips()
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
        return pack_unsent(self.text, self._attached)

    @property
    def context(self) -> int | None:
        """Tokens that one message may have; None while that is not known."""
        return self._room

    @context.setter
    def context(self, tokens: int | None) -> None:
        self._room = tokens
        for record in self._attached.attachments:
            if record.tokens is None:
                self._count(record)
        self._show_chips()

    def load(self, text: str, attachments: Sequence[Attachment] = ()) -> None:
        """Show this message to be edited and sent again."""
        self._attached.clear()
        self._attached.keep(attachments)
        self._history.forget()
        self._show_text(text)

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
        self.input.put_in(("" if not before or before.endswith(" ") else " ") + self._attached.paste(event.text) + " ")

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
            case "drop" if self._attached.shown:
                self._drop(self._attached.shown[-1])

    def _recall(self, text: str | None) -> None:
        if text is not None:
            self._show_text(text)

    def _show_text(self, text: str) -> None:
        if len(text) > 2 * FOLD_CHARACTERS:  # a long text of an old message
            text = self._attached.paste(text)
        self.input.load_text(sanitize(text))
        self.input.move_cursor(self.input.document.end)
        self._look()

    def _later(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        if name in self._delays:
            self._delays[name].stop()
        self._delays[name] = self.set_timer(seconds, call)

    def _hand_out(self) -> None:
        self.post_message(self.Changed(self.unsent))

    # Attachments

    def _look(self) -> None:
        self._gather(self.text, then_send=False)

    def _gather(self, text: str, *, then_send: bool) -> None:
        """Find what the text brings along; without a file in it that needs no thread."""
        if "@" in text:
            self._gather_files(text, then_send)
        else:
            self._take_gathered(text, gathered(text, self._attached), then_send)

    @work(thread=True, exclusive=True)
    def _gather_files(self, text: str, then_send: bool) -> None:
        self.post_message(self.Gathered(text, gathered(text, self._attached), then_send))

    def on_prompt_gathered(self, event: Gathered) -> None:
        event.stop()
        self._take_gathered(event.text, event.found, event.then_send)

    def _take_gathered(self, text: str, found: dict[str, Record], then_send: bool) -> None:
        if text == self.text:
            for attachment in self._attached.take(found):
                self._count(attachment)
            self._show_chips()
            if then_send:
                self._send_when_counted()
        elif then_send:
            self._gather(self.text, then_send=True)  # typed on meanwhile: what is there now is sent

    def _count(self, attachment: Attachment) -> None:
        if attachment not in self._counting.values():
            tag = f"{TAG}{attachment.name}"
            self._counting[tag] = attachment
            self.post_message(self.CountTokens(attachment.text, tag))

    def tokens_counted(self, tag: str, count: int) -> None:
        """The answer to CountTokens."""
        if (attachment := self._counting.pop(tag, None)) is not None:
            self._attached.counted(attachment.name, attachment.text, count)
            self._show_chips()
            if self._sending and not self._uncounted:
                self._submit()

    @property
    def _uncounted(self) -> bool:
        return any(attachment.tokens is None for attachment in self._attached.attachments)

    def _show_chips(self) -> None:
        typing = self._completion.typing  # a folder on the way to a file is no mistake
        items = [item for item in self._attached.items if item.name != typing or isinstance(item, Attachment)]
        self.query_one(Chips).show(items, self._room, shown_key(self.app, "drop_attachment"))

    def on_chips_dropped(self, event: Chips.Dropped) -> None:
        event.stop()
        self._drop(event.name)

    def _drop(self, name: str) -> None:
        self._attached.leave_out(name)
        self._show_chips()

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
            self._gather(self.text, then_send=True)

    def _command(self, given: Given) -> None:
        if given.command.action == "attach":
            self.begin(quoted(given.argument.strip('"').removeprefix("@")) + " ")
            return
        self.clear()
        self.post_message(self.CommandGiven(given))

    def _send_when_counted(self) -> None:
        """What is attached has to fit; the count comes from the engine and is waited for a moment."""
        if self._room is None or not self._uncounted:
            self._submit()
        else:
            self._later("send", PATIENCE, self._submit)

    def _submit(self) -> None:
        if not self._sending:
            return
        self._sending = False
        attached = self._attached
        problem = attached.refused[0].reason if attached.refused else too_long(attached.attachments, self._room)
        if problem:
            self._say(problem)
            return
        text = self.text
        message = self.Submitted(text[1:] if text.startswith("//") else text, tuple(attached.attachments))
        self.clear()
        self._hand_out()
        self.post_message(message)

    def _say(self, line: str) -> None:
        self.app.notify(line, severity="warning", markup=False)
