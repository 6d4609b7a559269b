"""Two lines about what goes on: `Activity` above the prompt while something does, `StatusLine` at the foot always."""

from __future__ import annotations

from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

BAR = 20
"""Cells of a progress bar."""


def bar(fraction: float, width: int = BAR) -> str:
    """A progress bar of `width` cells."""
    done = round(max(0.0, min(1.0, fraction)) * width)
    return "█" * done + "░" * (width - done)


BETWEEN = "  │  "


def pair_name(target: str, draft: str | None) -> str:
    """Target and draft on little room: of the draft's name only what is not in the target's."""
    if draft is None:
        return target
    ours, theirs = target.split("-"), draft.split("-")
    while len(theirs) > 1 and ours and ours[0] == theirs[0]:
        del ours[0], theirs[0]
    while len(theirs) > 1 and ours and ours[-1] == theirs[-1]:
        del ours[-1], theirs[-1]
    return f"{target} + {'-'.join(theirs)}"


class Activity(Static):
    """One line above the prompt; gone when there is nothing to say."""

    DEFAULT_CSS = """
    Activity {
        height: auto; max-height: 3; width: 1fr; padding: 0 1; display: none; color: $text-muted;
        &.-shown { display: block; }
        &.-problem { color: $text-error; text-style: bold; }
        &.-remark { color: $text-warning; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self.text = ""
        """What it says now."""
        self._kind = ""

    def progress(self, what: str, fraction: float, detail: str = "") -> None:
        """Something goes on and `fraction` of it is done."""
        self._say(f"{what}  {bar(fraction)} {fraction:4.0%}{f'  {detail}' if detail else ''}", "progress")

    def wait(self, what: str) -> None:
        """Something goes on, nobody knows how far."""
        self._say(what, "progress")

    def remark(self, line: str) -> None:
        """Something the user should read; stays until the next thing happens."""
        self._say(line, "remark")

    def problem(self, line: str) -> None:
        """Something the user has to see to; stays until it is over."""
        self._say(line, "problem")

    def clear(self, *kinds: str) -> None:
        """Say nothing any more; with `kinds`, only if what is said is of one of them."""
        if not kinds or self._kind in kinds:
            self._say("", "")

    def _say(self, text: str, kind: str) -> None:
        self.text, self._kind = text, kind
        self.set_class(bool(text), "-shown")
        self.set_class(kind == "problem", "-problem")
        self.set_class(kind == "remark", "-remark")
        self.update(text)


class StatusLine(Static):
    """Model pair, context, speed; on the right the keys that matter now."""

    DEFAULT_CSS = """
    StatusLine { height: 1; width: 1fr; padding: 0 1; background: $panel; color: $text-muted; }
    """

    model: reactive[str] = reactive("no model", init=False)
    context: reactive[str] = reactive("", init=False)
    pace: reactive[str] = reactive("", init=False)
    store: reactive[str] = reactive("", init=False)
    """Said only when the chats are not kept on disk."""
    hints: reactive[tuple[tuple[str, str], ...]] = reactive((), init=False)
    """Keys and words, the most important first."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)

    def render(self) -> Content:
        """The facts whole but for a long model name; of the hints as many as there is room for, the first always."""
        width = self.size.width
        facts = [text for text in (self.context, self.pace, self.store) if text]
        first = len(f"  {self.hints[0][0]} {self.hints[0][1]}") if self.hints else 0
        room = max(12, width - sum(len(fact) + len(BETWEEN) for fact in facts) - first)
        left = Content(BETWEEN).join([Content(self.model).truncate(room, ellipsis=True), *facts])
        right = Content("")
        for key, words in self.hints:
            more = Content.assemble(right, "  " if right else "", (key, "bold"), f" {words}")
            if left.cell_length + more.cell_length + 2 > width:
                break
            right = more
        if left.cell_length > width:
            return left.truncate(width, ellipsis=True)
        return Content.assemble(left, " " * max(1, width - left.cell_length - right.cell_length), right) if right else left
