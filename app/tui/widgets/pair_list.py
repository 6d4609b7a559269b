"""The list of pairs: the recommended one, what is here, what fits, and, folded away, what does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.chat.memory_needs import needs_of
from app.chat.model_choice import Offer
from app.tui.keys import bind
from app.tui.widgets.offer_text import row
from models import Hardware

FOLD = "fold"
NEVER = 1 << 62


class PairList(OptionList):
    """Enter and the mouse choose; what that means is for the screen to say."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "Use"),
        bind("list_context", "screen.context", show=True),
        bind("list_draft", "screen.draft", show=True),
    ]
    DEFAULT_CSS = """
    PairList {
        height: 1fr; width: 1fr; border: none; padding: 0; background: $background;
        text-wrap: nowrap; text-overflow: ellipsis; scrollbar-size-vertical: 1;
        & > .option-list--option-highlighted, &:focus > .option-list--option-highlighted {
            background: $primary 30%; color: $foreground; text-style: bold;
        }
        &:ansi > .option-list--option-highlighted, &:ansi:focus > .option-list--option-highlighted {
            background: $block-cursor-background; color: $block-cursor-foreground;
        }
        & > .option-list--option-disabled { color: $text-primary; text-style: bold; }
    }
    """

    class Looked(Message):
        """Another row is highlighted."""

    class Taken(Message):
        """A pair was chosen."""

        def __init__(self, offer: Offer) -> None:
            super().__init__()
            self.offer = offer

    def __init__(self, *, id: str | None = None) -> None:
        self._drawing = self._moved = False
        """The user went somewhere, so the highlight stays."""
        super().__init__(id=id, markup=False, compact=True)
        self._offers: dict[str, Offer] = {}
        self._machine: Hardware | None = None
        self._best: str | None = None
        self._current: str | None = None
        self._unfolded = False
        self._wanted: str | None = None

    @property
    def here(self) -> Offer | None:
        """The highlighted pair."""
        option = self.highlighted_option
        return self._offers.get(option.id) if option is not None and option.id is not None else None

    @property
    def names(self) -> list[str]:
        """The pairs in the list, from the top; those that are folded away are not in it."""
        return [option.id for option in self.options if option.id in self._offers]

    def show(
        self, offers: Iterable[Offer], machine: Hardware, *, best: str | None, current: str | None, wanted: str | None = None
    ) -> None:
        """These pairs. `best` is recommended, `current` is in use. The highlight stays where the user put it; until then it
        is on `wanted`, else on the best."""
        self._offers = {offer.name: offer for offer in offers}
        self._machine, self._best, self._current, self._wanted = machine, best, current, wanted
        if wanted in self._offers and not self._offers[wanted].usable:
            self._unfolded = True
        self._draw()

    def on_resize(self, event: events.Resize) -> None:
        self._draw()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option_id == FOLD:
            self._unfolded = not self._unfolded
            self._draw()
        elif (offer := self.here) is not None:
            self.post_message(self.Taken(offer))

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self.post_message(self.Looked())

    def watch_highlighted(self, highlighted: int | None) -> None:
        super().watch_highlighted(highlighted)
        if highlighted is not None and not self._drawing:
            self._moved = True

    def _draw(self) -> None:
        machine = self._machine
        if machine is None or not self.size.width:
            return
        at = self.highlighted_option.id if self._moved and self.highlighted_option is not None else self._wanted or self._best
        place = self.scroll_offset.y
        self._drawing = True
        with self.prevent(OptionList.OptionHighlighted):
            self.clear_options()
            self.add_options(self._lines_of(machine))
            ids = [option.id for option in self.options]
            first = next((i for i, option in enumerate(self.options) if not option.disabled), None)
            self.highlighted = ids.index(at) if at in ids else first
        self._drawing = False
        if self._moved:
            self.scroll_to(y=place, animate=False)
        self.post_message(self.Looked())

    def _lines_of(self, machine: Hardware) -> Iterator[Option]:
        offers = sorted(self._offers.values(), key=lambda offer: _bytes(offer, machine))
        best = [offer for offer in offers if offer.name == self._best]
        rest = [offer for offer in offers if offer.name != self._best]
        here = [offer for offer in rest if offer.usable and offer.here]
        fit = [offer for offer in rest if offer.usable and not offer.here]
        yield from self._section("Recommended for this machine", best, machine)
        yield from self._section("On this disk", here, machine)
        yield from self._section("To download", fit, machine)
        if folded := [offer for offer in rest if not offer.usable]:
            yield Option(f"{'▾' if self._unfolded else '▸'} {len(folded)} more that cannot run here, with the reasons", id=FOLD)
            if self._unfolded:
                yield from self._rows(folded, machine)

    def _section(self, heading: str, offers: Sequence[Offer], machine: Hardware) -> Iterator[Option]:
        if offers:
            yield Option(Content(heading), disabled=True)
            yield from self._rows(offers, machine)

    def _rows(self, offers: Iterable[Offer], machine: Hardware) -> Iterator[Option]:
        width = self.scrollable_content_region.width or self.size.width
        for offer in offers:
            yield Option(row(offer, machine, width - 1, current=offer.name == self._current), id=offer.name)


def _bytes(offer: Offer, machine: Hardware) -> int:
    answer = offer.fit.answer
    return sum(needs.total for needs in needs_of(answer, machine)) if answer is not None else NEVER
