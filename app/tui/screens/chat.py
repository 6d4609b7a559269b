"""The chat: transcript, prompt, status. Turns keys, commands and what the engine host says into calls of the parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from app.chat import events as told
from app.chat.conversation import Attachment, Message
from app.chat.engine_host import EngineHost
from app.chat.pace import PaceSnapshot
from app.chat.session import ChatSession
from app.errors import AppError
from app.paths import Paths
from app.sanitize import sanitize
from app.settings import Settings
from app.tui.commands import parse, perform
from app.tui.hints import hints_for
from app.tui.keys import bind, shown_key
from app.tui.replies import Replies
from app.tui.screens.chat_dialogs import ChatDialogs, refusable
from app.tui.screens.message_actions import MessageActions
from app.tui.widgets.code_block import CodeBlock
from app.tui.widgets.find_bar import FindBar
from app.tui.widgets.message import MessageView
from app.tui.widgets.pace import PacePanel
from app.tui.widgets.prompt import Prompt
from app.tui.widgets.status import Activity, StatusLine, pair_name
from app.tui.widgets.thrifty import Columns, Rows, Thrifty
from app.tui.widgets.transcript import Transcript
from app.units import gb

WIDE = 110
"""Columns from which on the pace panel stands at the side."""
TITLED = ("complete", "length", "context")
"""How a reply ends after which the chat gets its title."""
LOOK_SECONDS = 1.0
"""Between two looks at what other windows have changed."""
EMPTY = "What shall we talk about?"


class ChatScreen(Screen[None], Thrifty):
    """One chat at a time. The session says which."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bind("cancel", "cancel"),
        bind("new_chat", "command('new')"),
        bind("history", "command('history')"),
        bind("find", "find", priority=True),
        bind("reload", "reload"),
        bind("system", "command('system')"),
        bind("rename", "command('rename')"),
        bind("details", "command('details')"),
        bind("regenerate", "regenerate"),
        bind("pace", "pace"),
        bind("origins", "origins"),
        bind("thinking", "thinking"),
        bind("copy_reply", "command('copy')"),
        bind("older", "scroll(-1)"),
        bind("newer", "scroll(1)"),
        bind("oldest", "oldest"),
        bind("newest", "newest"),
    ]
    VERTICAL_BREAKPOINTS: list[tuple[int, str]] | None = [(0, "-low"), (18, "-high")]  # noqa: RUF012 - as the base class declares it
    HORIZONTAL_BREAKPOINTS: list[tuple[int, str]] | None = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 - as the base class declares it

    def __init__(
        self, session: ChatSession, host: EngineHost, paths: Paths, settings: Callable[[], Settings],
        load: Callable[[], None],
    ) -> None:
        """`load` has the host load the chosen models, or asks which."""
        super().__init__()
        self.session = session
        self.host = host
        self.paths = paths
        self._settings = settings
        self._load = load
        self.transcript = Transcript(id="transcript")
        self.prompt = Prompt(lambda most: session.store.recent_prompts(most), id="prompt")
        self.activity = Activity(id="activity")
        self.status = StatusLine(id="status")
        self._title = Static("", id="title", markup=False)
        self._find = FindBar(id="find")
        self._replies = Replies(session, host, self.transcript, self.activity, lambda: settings().on_context_full)
        self.dialogs = ChatDialogs(self)
        self._actions = MessageActions(self, self._replies)
        self.command_parts = (self.dialogs, self._actions)
        self._pace = PacePanel(id="pace")
        self._thinking_opened = False
        self._coloured = False
        self._pair = ""
        """What is loaded; empty for nothing."""

    def compose(self) -> ComposeResult:
        yield self._title
        with Columns(id="middle"):
            with Rows(id="main"):
                yield Static(EMPTY, id="empty", markup=False)
                yield self.transcript
                yield self._find
                yield self.activity
                yield self.prompt
            yield self._pace
        yield self.status

    async def on_mount(self) -> None:
        self.apply_settings()
        await self.show_chat()
        self.prompt.focus()
        self.call_after_refresh(self._load)
        self.set_interval(LOOK_SECONDS, self._look_again)

    def apply_settings(self) -> None:
        """Look as the settings say."""
        self._pace.display = self._settings().show_pace
        if self._settings().colour_origins != self._coloured:
            self.action_origins()

    # ---- the chat shown

    async def show_chat(self) -> None:
        """Show the session's chat from its end, with what was not sent of it in the prompt."""
        chat = self.session.chat
        self.host.open_chat(chat.id if chat is not None else None)
        await self._replies.show_path(fresh=True)
        self.show_numbers(None)
        self.prompt.load_unsent(chat.unsent if chat is not None else "")
        self.show_title()
        self.update_hints()
        self.prompt.focus()

    async def show_path(self) -> None:
        """Show what has changed in the session's path."""
        await self._replies.show_path()
        self.show_title()
        self.update_hints()

    @refusable
    async def _look_again(self) -> None:
        """Take up what other windows do in this chat."""
        if self.is_current and not self.dialogs.choosing and await self._replies.look_again():
            self.show_numbers(self.transcript.selected)
            self.show_title()
            self.update_hints()

    def show_title(self) -> None:
        chat = self.session.chat
        title = sanitize(chat.title) if chat is not None else ""
        tags = sanitize("".join(f"  #{tag}" for tag in chat.tags)) if chat is not None else ""
        self._title.update(Content.assemble(title or ("Chat" if self.session.path else "New chat"), (tags, "not bold")))
        self.set_class(not self.session.path, "-empty")
        if not self.session.path and self.focused is self.transcript:  # which is hidden now and hears no key
            self.prompt.focus()
        self.prompt.busy = self.session.replying

    def show_numbers(self, message: Message | None) -> None:
        """On the pace panel: those of that reply, or of the last one."""
        if self.session.replying:
            return
        selected = message is not None and message.role == "assistant"
        of = message if selected else next((m for m in reversed(self.session.path) if m.role == "assistant"), None)
        snapshot = PaceSnapshot.from_report(of.report) if of is not None else None
        self._pace.show(snapshot, heading="This reply" if selected else "Pace", live=False)
        self.set_class(snapshot is None, "-no-pace")
        self._show_speed(snapshot.reply_tokens_per_second if snapshot is not None else 0.0)

    def _show_speed(self, rate: float) -> None:
        """On the status line, unless the panel shows it."""
        self.status.pace = f"{rate:.1f} tokens/s" if rate and not self._pace.display else ""

    def update_hints(self) -> None:
        """The keys that matter now, on the status line."""
        self.status.hints = hints_for(self)

    on_transcript_followed = on_descendant_focus = on_screen_resume = update_hints

    # ---- sending

    async def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        await self.send(event.text, tuple(event.attachments))

    async def on_prompt_command_given(self, event: Prompt.CommandGiven) -> None:
        if not await perform(self, event.given):
            self.tell(f"/{event.given.command.name} is not possible now")

    def on_prompt_changed(self, event: Prompt.Changed) -> None:
        self.session.keep_unsent(event.unsent)

    def on_prompt_count_tokens(self, event: Prompt.CountTokens) -> None:
        self.host.count_tokens(event.text, event.tag)

    @refusable
    async def send(self, text: str, attachments: tuple[Attachment, ...]) -> None:
        """Send a message, or the edited one in the place of the old."""
        self._load_if_none()
        try:
            await self._actions.send(text, attachments)
        except AppError:
            self.prompt.load(text, attachments)
            raise
        finally:
            self.show_title()
            self.update_hints()

    def _load_if_none(self) -> None:
        if self.host.state in ("empty", "lost"):
            self._load()

    # ---- what the host says

    @refusable
    async def hear(self, event: told.HostEvent) -> None:
        """Show what the engine host tells."""
        match event:
            case told.ReplyGrew():
                self._replies.grew(event)
            case told.PaceChanged():
                self._show_pace(event)
            case told.PromptRead():
                self._replies.read(event)
            case told.ReplyEnded():
                await self._ended(event)
            case told.HostNotice():
                self._replies.noticed(event)
            case told.SummaryMade():
                self.session.moved(event)
                await self.show_path()
            case told.ModelLoading(stage, fraction):
                self.status.model, self.status.pace = "loading…", ""
                self.activity.progress(stage, fraction, f"{shown_key(self.app, 'reload')} stops")
            case told.ModelReady():
                self._ready(event)
            case told.ModelMissing(files, size):
                much = f" ({gb(size)} GB)" if size else ""
                self._without_model(f"not on this disk: {', '.join(files)}{much} · {shown_key(self.app, 'models')} fetches them")
            case told.ModelFailed(text) if self.host.state in ("ready", "replying"):  # the one that was loaded still is
                self.status.model = self._pair
                self.activity.problem(text)
            case told.ModelFailed(text) | told.EngineLost(text):
                self._without_model(f"{text} · {shown_key(self.app, 'reload')} loads the model")
            case told.StoreFailed(text):
                self.session.go_to_memory(text)
            case told.TitleMade(chat_id, title):
                self.session.take_title(chat_id, title)
                self.show_title()
            case told.TokensCounted(tag, count) if count is not None:
                self.prompt.tokens_counted(str(tag), count)

    def _ready(self, event: told.ModelReady) -> None:
        self.activity.clear()
        self.status.model = self._pair = sanitize(pair_name(event.target_name, event.draft_name))
        self.status.context = f"{event.context:,} context"
        self.prompt.context = event.context
        if event.notices:
            self.activity.remark(" · ".join(event.notices))

    def _without_model(self, why: str) -> None:
        self.status.model, self.status.pace = "no model", ""
        self.activity.problem(why)

    def _show_pace(self, event: told.PaceChanged) -> None:
        snapshot = event.snapshot
        self._pace.show(snapshot)
        self.remove_class("-no-pace")
        self.status.context = f"{snapshot.context_used:,}/{snapshot.context_size:,} context"
        self._show_speed(snapshot.tokens_per_second)

    async def _ended(self, event: told.ReplyEnded) -> None:
        given_back = await self._replies.ended(event)
        shown = any(message.id == event.message_id for message in self.session.path)
        if given_back is not None:
            self.prompt.load_over(given_back.text, given_back.attachments)
            self.prompt.focus()
        elif not shown:
            self.tell("the reply in the other chat has ended")
        elif event.state in TITLED:
            self._replies.name_chat(by_model=self._settings().auto_title)
        self.show_numbers(None)
        self.show_title()
        self.update_hints()

    # ---- keys and commands

    async def action_command(self, line: str) -> None:
        """A key for what a command does, too."""
        if (given := parse(f"/{line}")) is not None:
            await perform(self, given)

    def action_cancel(self) -> None:
        """Stop the reply; else go between the prompt and the messages. A load goes on: its own key stops it."""
        if self.session.replying:
            self.host.cancel_reply()
            self.activity.wait("stopping…")
        elif self.focused is self.transcript:
            self.transcript.cursor = None
            self.prompt.focus()
        elif self.session.path:
            self.transcript.focus()
            self.run_worker(self.transcript.move_cursor(0))

    def keep_unsent(self) -> None:
        """Store what stands in the prompt."""
        self.session.keep_unsent(self.prompt.unsent)

    def takes_typing(self, event: events.Key | events.Paste) -> None:
        """What is typed or pasted while the messages have the focus is for the prompt, except the keys that mean
        something there."""
        if self.focused is not self.transcript:
            return
        if isinstance(event, events.Paste) or (event.is_printable and event.key not in self.active_bindings):
            self.transcript.cursor = None
            self.set_focus(self.prompt.input)

    @refusable
    async def action_regenerate(self) -> None:
        if self.idle():
            self._load_if_none()
            if not await self._replies.regenerate(self.transcript.cursor):
                self.tell("there is no message to reply to")
        self.update_hints()

    def action_reload(self) -> None:
        """Load the models anew, or stop loading them: a message that waits for them comes back."""
        if self.host.state == "loading":
            self.host.cancel()
            self.activity.wait("stopping…")
        elif self.idle():
            self._load()

    def action_find(self, words: str = "") -> None:
        self._find.open(words)

    def action_pace(self) -> None:
        self._pace.display = not self._pace.display
        self.show_numbers(self.transcript.selected)

    def action_origins(self) -> None:
        self._coloured = not self._coloured
        self.transcript.set_coloured(self._coloured)

    def action_thinking(self) -> None:
        self._thinking_opened = not self._thinking_opened
        self.transcript.set_thinking_opened(self._thinking_opened)

    def action_scroll(self, pages: int) -> None:
        if pages < 0:
            self.transcript.scroll_page_up(animate=False)
        else:
            self.transcript.scroll_page_down(animate=False)

    async def action_oldest(self) -> None:
        if self.session.path:
            await self.transcript.go_to(self.session.path[0].id)

    async def action_newest(self) -> None:
        await self.transcript.follow()

    @refusable
    async def on_transcript_wanted(self, event: Transcript.Wanted) -> None:
        await self._actions.do(event.what)

    def on_transcript_cursor_moved(self, event: Transcript.CursorMoved) -> None:
        self.show_numbers(event.message)

    async def on_message_view_clicked(self, event: MessageView.Clicked) -> None:
        self.transcript.cursor = event.message_id

    def on_code_block_copy_wanted(self, event: CodeBlock.CopyWanted) -> None:
        self._actions.copy(event.code)

    # ---- saying so

    def tell(self, line: str, *, failed: bool = False) -> None:
        """One line that passes."""
        self.notify(line, severity="error" if failed else "information", markup=False)

    def idle(self) -> bool:
        """Whether no reply is being written; the user is told if one is."""
        if self.session.replying:
            self.tell("a reply is being written; Esc stops it")
        return not self.session.replying

    # ---- searching

    def on_find_bar_wanted(self, event: FindBar.Wanted) -> None:
        self._find.found(self.session.find(event.text))

    @refusable
    async def on_find_bar_stepped(self, event: FindBar.Stepped) -> None:
        await self._actions.go_to(event.message_id)

    def on_find_bar_closed(self) -> None:
        self.transcript.focus()
