"""The models: what this machine can run, what a load would take, and getting what is not here.

The first thing a new user sees, and later the way to other models. Everything that takes time runs in threads: looking at
the pairs, which are shown as they come, and the download.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import ClassVar, Literal

from textual import events, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Footer, Static
from textual.worker import get_current_worker

from app.chat.model_choice import USUAL_CONTEXTS, Models, Offer, is_offline
from app.errors import AppError
from app.fit import recommend
from app.options import LoadChoices
from app.paths import Paths
from app.sanitize import sanitize
from app.tui.keys import bind
from app.tui.screens.pick_one import PickOne
from app.tui.widgets.download_meter import DownloadMeter
from app.tui.widgets.download_panel import DownloadPanel
from app.tui.widgets.offer_text import details, files, machine_line, title_of, why_not
from app.tui.widgets.pair_list import PairList
from app.units import gb
from models import DownloadCancelled, ModelsError, download

FIRST = "No model is here yet. Enter downloads this pair, then the chat begins."
BEGUN = "A download was left unfinished; Enter goes on with it."
BATCH_SECONDS = 0.1
"""The list is drawn again at most this often while it fills."""

Kind = Literal["", "remark", "problem"]


class ModelsScreen(ModalScreen[LoadChoices | None]):
    """Dismisses with what to load, all of it on this disk, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bind("close", "leave", show=True),
    ]
    DEFAULT_CSS = """
    ModelsScreen {
        background: $background;
        Vertical { width: 1fr; height: 1fr; }
        #models-head { height: auto; width: 1fr; padding: 0 1; background: $panel; }
        #models-title { width: auto; padding: 0 1 0 0; text-style: bold; }
        #models-machine { width: 1fr; color: $text-muted; }
        #models-line { display: none; height: auto; max-height: 3; width: 1fr; padding: 0 1; }
        #models-line.-remark, #models-line.-problem { display: block; }
        #models-line.-remark { color: $text-warning; }
        #models-line.-problem { color: $text-error; text-style: bold; }
        #models-details { height: auto; max-height: 8; width: 1fr; padding: 0 1; border-top: solid $border-blurred; }
        DownloadPanel { border-top: solid $border-blurred; }
        &.-fetching #models-details { display: none; }
    }
    """

    class Looked(Message):
        """Some pairs have been looked at."""

        def __init__(self, models: Models, offers: list[Offer]) -> None:
            super().__init__()
            self.models = models
            self.offers = offers

    class LookedAll(Message):
        """There are no more pairs. `problem` is why some may be missing."""

        def __init__(self, current: str | None, problem: str | None) -> None:
            super().__init__()
            self.current = current
            self.problem = problem

    class Fetched(Message):
        """A download is over: all is here, or `problem` says why not; None for the user's own stop."""

        def __init__(self, offer: Offer, *, done: bool, problem: str | None = None) -> None:
            super().__init__()
            self.offer = offer
            self.done = done
            self.problem = problem

    def __init__(self, paths: Paths, given: LoadChoices, *, wanted: str = "", loaded: bool = False, first: bool = False) -> None:
        """`given` is what is chosen now, and `loaded` says whether it is. `wanted` is highlighted, a pair's name or anything
        `--target` takes. `first`: there is no model on this disk."""
        super().__init__()
        self._paths = paths
        self._given = given
        self._tokens = given.ctx
        self._wanted = wanted
        self._loaded = loaded
        self._first = first
        self._models: Models | None = None
        self._offers: dict[str, Offer] = {}
        self._drafts: dict[str, str | None] = {}
        """Drafts that were chosen, by the offer's name; None for the usual one."""
        self._current: str | None = None
        self._complete = False
        self._stop = threading.Event()
        self._fetching: Offer | None = None
        self._tried = False
        """A download was begun on this screen, and what became of it is told."""
        self._taken: LoadChoices | None = None
        """What to dismiss with as soon as this screen is on top."""
        self._list = PairList(id="models-list")
        self._machine = Static("looking at this machine…", id="models-machine", markup=False)
        self._line = Static("", id="models-line", markup=False)
        self._details = Static("", id="models-details", markup=False)
        self._panel = DownloadPanel(id="models-download")

    def compose(self) -> ComposeResult:
        with Vertical():
            with Horizontal(id="models-head"):
                yield Static("Models", id="models-title", markup=False)
                yield self._machine
            yield self._line
            yield self._list
            yield self._details
            yield self._panel
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self._list.focus()
        self._greet()
        self._look()

    def on_resize(self) -> None:
        self._show_details()

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        if self._taken is not None:
            self.dismiss(self._taken)

    # ---- looking at what there is

    @work(thread=True, exclusive=True, group="look")
    def _look(self) -> None:
        worker, context, problem, current = get_current_worker(), self._tokens, None, None
        try:
            models = Models(self._paths, self._given, loaded=self._loaded)
            offers: list[Offer] = []
            sent = time.monotonic()
            for offer in models.all(context, extra=(self._wanted, self._given.target or "")):
                if worker.is_cancelled:
                    return
                offers.append(self._with_draft(models, offer))
                if time.monotonic() - sent > BATCH_SECONDS:
                    self.post_message(self.Looked(models, offers))
                    offers, sent = [], time.monotonic()
            self.post_message(self.Looked(models, offers))
            current = models.current()
            if self._wanted:
                models.offer(self._wanted, None, context)
        except AppError as error:
            problem = str(error)
        if not worker.is_cancelled:
            self.post_message(self.LookedAll(current, problem))

    def _with_draft(self, models: Models, offer: Offer) -> Offer:
        """The offer with the draft that was chosen for it."""
        if offer.name not in self._drafts:
            return offer
        return models.offer(offer.name, self._drafts[offer.name], self._tokens)

    def on_models_screen_looked(self, event: Looked) -> None:
        if self._models is not event.models:
            self._models = event.models
            self._machine.update(machine_line(event.models.machine))
        self._offers |= {offer.name: offer for offer in event.offers}
        self._show()

    def on_models_screen_looked_all(self, event: LookedAll) -> None:
        self._complete = True
        self._current = event.current if self._loaded else None
        if event.problem is not None:
            self._say(event.problem, "problem")
        elif self._begun() is not None and not self._wanted and not self._tried:
            self._say(BEGUN, "remark")
        self._show()

    def _show(self) -> None:
        if self._models is None:
            return
        begun = self._begun()
        wanted = self._wanted or (begun.name if begun is not None else self._current)
        self._list.show(self._offers.values(), self._models.machine, best=self._best(), current=self._current, wanted=wanted)

    def _best(self) -> str | None:
        """The pair to recommend, once all are known; offline one that is here."""
        if not self._complete or self._models is None:
            return None
        offers = [offer for offer in self._offers.values() if not offer.origin and (offer.here or not is_offline(self._given))]
        best = recommend([offer.fit for offer in offers], self._models.machine)
        return best.name if best is not None else None

    def _begun(self) -> Offer | None:
        """The pair whose download went furthest before it was left."""
        begun = [offer for offer in self._offers.values() if offer.partial_bytes and offer.usable]
        return max(begun, key=lambda offer: (offer.partial_bytes, -offer.fit.download_bytes), default=None)

    def on_pair_list_looked(self) -> None:
        self._show_details()

    def _show_details(self) -> None:
        offer = self._list.here
        if offer is None or self._models is None:
            self._details.update("")
            return
        width = max(20, self.size.width - 2)
        self._details.update(Content("\n").join(details(offer, self._models.machine, width)))

    # ---- taking one

    def on_pair_list_taken(self, event: PairList.Taken) -> None:
        offer = event.offer
        if self._fetching is not None:
            self._say("a download goes on; Esc stops it and keeps what has arrived", "remark")
        elif not offer.usable:
            self._say(f"{offer.title}: {why_not(offer)}", "problem")
        elif offer.here:
            self._take(offer)
        elif why := is_offline(self._given):
            self._say(f"offline ({why}): {offer.title} cannot be fetched; what is on this disk can be used", "problem")
        else:
            self._fetch(offer)

    def _take(self, offer: Offer) -> None:
        try:
            if offer.unregistered and self._models is not None:
                offer = self._models.register(offer)
        except (AppError, OSError) as error:
            self._say(f"{offer.title} cannot be taken in: {error}", "problem")
            return
        self._taken = offer.choices(self._given, self._tokens)
        if self.is_current:
            self.dismiss(self._taken)

    def action_leave(self) -> None:
        """Stop the download, or go."""
        if self._fetching is not None:
            self._stop.set()
            self._say("stopping…", "remark")
        else:
            self.dismiss(None)

    # ---- fetching

    def _fetch(self, offer: Offer) -> None:
        self._stop.clear()
        self._fetching, self._tried = offer, True
        self.set_class(True, "-fetching")
        meter = DownloadMeter()
        self._panel.show_meter(meter)
        self._say(f"downloading {offer.title}: {files(offer)} · Esc stops and keeps what has arrived", "remark")
        self._download(offer, meter)

    @work(thread=True, group="download")
    def _download(self, offer: Offer, meter: DownloadMeter) -> None:
        worker = get_current_worker()
        try:
            download(
                offer.files, self._paths.models, progress=lambda report: meter.add(report, time.monotonic()),
                notice=meter.say, cancelled=lambda: self._stop.is_set() or worker.is_cancelled,
            )
        except DownloadCancelled:
            self.post_message(self.Fetched(offer, done=False))
        except ModelsError as error:
            self.post_message(self.Fetched(offer, done=False, problem=str(error)))
        else:
            self.post_message(self.Fetched(offer, done=True))

    def on_models_screen_fetched(self, event: Fetched) -> None:
        self._fetching = None
        self.set_class(False, "-fetching")
        self._panel.show_meter(None)
        if event.done:
            self._take(event.offer)
            return
        if event.problem is not None:
            self._say(event.problem, "problem")
        else:
            self._say("stopped; what has arrived is kept, and Enter goes on from there", "remark")
        self._look()

    # ---- another context, another draft

    @work(exclusive=True, group="pick")
    async def action_context(self) -> None:
        """Choose how many tokens the model can look back on; what each choice takes stands beside it."""
        offer, models = self._list.here, self._models
        if offer is None or models is None or not self._complete:
            return
        try:
            sizes = await asyncio.to_thread(_contexts, models, offer)
        except AppError as error:
            self._say(str(error), "problem")
            return
        lines = ["usual: 4,096, or what fits", *(line for _, line in sizes)]
        values = [None, *(tokens for tokens, _ in sizes)]
        chosen = values.index(self._tokens) if self._tokens in values else 0
        picked = await self.app.push_screen_wait(PickOne(f"Context in tokens, with what {title_of(offer)} needs", lines, chosen))
        if picked is not None:
            self._tokens = values[picked]
            self._complete = False
            self._look()

    @work(exclusive=True, group="pick")
    async def action_draft(self) -> None:
        """Choose what writes ahead for the highlighted target."""
        from app.selection import NO_DRAFT

        offer, models = self._list.here, self._models
        if offer is None or models is None or not self._complete:
            return
        drafts = models.drafts_for(offer)
        lines = ["the usual one", "none: n-grams only", *(title for _, title in drafts)]
        values = [None, NO_DRAFT, *(name for name, _ in drafts)]
        chosen = values.index(offer.draft) if offer.draft in values else 0
        picked = await self.app.push_screen_wait(PickOne(f"What drafts for {sanitize(offer.fit.target)}", lines, chosen))
        if picked is None:
            return
        try:
            made = await asyncio.to_thread(models.offer, offer.name, values[picked], self._tokens)
        except AppError as error:
            self._say(str(error), "problem")
            return
        self._drafts[offer.name] = values[picked]
        self._offers[offer.name] = made
        self._show()

    # ---- saying

    def _greet(self) -> None:
        if why := is_offline(self._given):
            self._say(f"Offline ({why}): what is on this disk can be used, nothing can be fetched.", "remark")
        elif self._first:
            self._say(FIRST, "remark")

    def _say(self, line: str, kind: Kind) -> None:
        self._line.update(sanitize(line).replace("->", "→"))
        self._line.set_class(kind == "remark", "-remark")
        self._line.set_class(kind == "problem", "-problem")


def _contexts(models: Models, offer: Offer) -> list[tuple[int, str]]:
    """Contexts to choose from, and what the pair needs with each."""
    found = []
    for tokens in USUAL_CONTEXTS:
        fit = models.offer(offer.name, offer.draft, tokens).fit
        if (plan := fit.plan) is None:
            return [(size, f"{size:,}") for size in USUAL_CONTEXTS]
        if plan.context < tokens and fit.fits:
            break  # more than the model was trained on
        needs = f"{gb(plan.host_needed_bytes + plan.device_bytes)} GB"
        found.append((tokens, f"{tokens:>7,}   {needs}" + ("" if fit.fits else "   does not fit")))
    return found
