"""What the writer of a reply keeps and tells, on a real store."""

from __future__ import annotations

from app.chat.conversation import OriginSpan
from app.chat.events import HostEvent, ReplyEnded
from app.chat.reply_writer import Desk, ReplyWriter
from app.settings import ChatSettings
from app.store import ChatStore
from engine import TextDelta


def test_what_is_not_printable_is_nobody_s() -> None:
    """An escape sequence that begins in one token and ends in another, between two proposers."""
    told: list[HostEvent] = []
    store = ChatStore.in_memory()
    chat = store.new_chat(ChatSettings())
    reply = store.start_reply(chat.id, store.add_message(chat.id, None, "user", "Hello.").id)
    writer = ReplyWriter(Desk(told.append, lambda: store, lambda: False, lambda: None, lambda: None), reply.id, 512)
    writer.take(TextDelta("a\x1b[3", ("model", "target"), (2, 2)))
    writer.take(TextDelta("1mbc\x07d", ("ngram", "ngram", "target"), (3, 2, 1)))
    writer.end("complete")
    (ended,) = [event for event in told if isinstance(event, ReplyEnded)]
    spans = (OriginSpan("model", 1), OriginSpan("ngram", 2), OriginSpan("target", 1))
    assert (ended.text, ended.spans) == ("abcd", spans)
    assert store.message(reply.id).origins == spans
