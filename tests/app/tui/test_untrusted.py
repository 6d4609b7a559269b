"""What is stored may have come from anywhere: nothing of it can speak to the terminal."""

from __future__ import annotations

from app.chat.conversation import Attachment, OriginSpan
from app.settings import ChatSettings
from app.store import ChatStore
from tests.app.tui.conftest import RunApp

NASTY = "before \x1b[31mred\x1b[0m \x1b]52;c;aGk=\x07 \x9b2J \x1bc after"


async def test_stored_texts_and_names_are_shown_without_their_control_sequences(run_app: RunApp, store: ChatStore) -> None:
    chat = store.new_chat(ChatSettings(), f"title {NASTY}")
    asked = store.add_message(chat.id, None, "user", NASTY, (Attachment(f"a{NASTY}.txt", "x", None),))
    reply = store.start_reply(chat.id, asked.id)
    store.finish_reply(reply.id, NASTY, (OriginSpan("model", len(NASTY)),), "complete", None)
    async with run_app(chat=chat.id) as running:
        await running.until(lambda: running.transcript.view(reply.id))
        for id in (asked.id, reply.id):
            view = running.transcript.view(id)
            assert view is not None
            assert view.text.startswith("before red ")
            assert view.text.endswith("after")
        await running.pilot.press("f11")
        await running.pilot.pause()
        svg = running.app.export_screenshot()
        assert not {"\x1b", "\x9b", "\x07"} & set(svg + running.shown(asked.id) + running.shown(reply.id))
        assert "title before" in svg.replace("&#160;", " ")
