from __future__ import annotations

import pytest

from app.chat.conversation import Attachment, OriginSpan
from app.settings import ChatSettings
from app.store import ChatStore, NotFound


def shown(store: ChatStore, chat: int) -> list[str]:
    return [message.text for message in store.path(chat)]


def say(store: ChatStore, chat: int, parent: int | None, *texts: str) -> list[int]:
    """A branch of messages below `parent`; their ids."""
    ids = []
    for text in texts:
        parent = store.add_message(chat, parent, "user", text).id
        ids.append(parent)
    return ids


def test_a_message_comes_back_as_it_was_stored(store: ChatStore, chat: int) -> None:
    files = (Attachment("a [b].py", "x = '\N{SNOWMAN}'\n", 7), Attachment("b", "", None))
    stored = store.add_message(chat, None, "user", "text\twith\n[markup] \x1b[31m and \N{FAMILY}", files)
    assert store.path(chat) == [stored]
    assert stored.attachments == files
    assert (stored.role, stored.state, stored.kind, stored.parent_id) == ("user", "complete", "message", None)
    assert store.message(stored.id) == stored
    assert store.chat(chat).leaf_id == stored.id


def test_half_a_surrogate_pair_does_not_lose_a_message(store: ChatStore, chat: int) -> None:
    stored = store.add_message(chat, None, "user", "broken \ud83d emoji, whole \ud83c\udf89 one")
    assert stored.text == "broken \N{REPLACEMENT CHARACTER} emoji, whole \N{PARTY POPPER} one"
    store.set_unsent(chat, "\udc00")


def test_a_reply_grows_and_keeps_its_numbers(store: ChatStore, chat: int) -> None:
    (question,) = say(store, chat, None, "question")
    reply = store.start_reply(chat, question)
    assert (reply.text, reply.state, reply.role) == ("", "streaming", "assistant")
    store.grow_reply(reply.id, "some", [OriginSpan("target", 4)])
    assert store.path(chat)[-1].text == "some"
    spans = [OriginSpan("target", 2), OriginSpan("target", 2), OriginSpan("model", 5), OriginSpan("ngram", 0)]
    store.finish_reply(reply.id, "some text", spans, "length", {"usage": {"completion_tokens": 2}})
    last = store.path(chat)[-1]
    assert (last.text, last.state, last.report) == ("some text", "length", {"usage": {"completion_tokens": 2}})
    assert last.origins == (OriginSpan("target", 4), OriginSpan("model", 5))


def test_a_new_sibling_is_shown_and_the_old_branch_can_be_shown_again(store: ChatStore, chat: int) -> None:
    a, b, _ = say(store, chat, None, "a", "b", "c")
    (d,) = say(store, chat, a, "d")
    assert shown(store, chat) == ["a", "d"]
    assert store.siblings(b) == store.siblings(d) == [b, d]
    assert store.branches(chat) == {d: [b, d]}
    store.select(b)
    assert shown(store, chat) == ["a", "b", "c"]


def test_selecting_shows_the_branch_last_shown_below(store: ChatStore, chat: int) -> None:
    _, b, c = say(store, chat, None, "a", "b", "c")
    say(store, chat, b, "c2", "d2")
    (other,) = say(store, chat, None, "other start")
    store.select(b)
    assert shown(store, chat) == ["a", "b", "c2", "d2"]
    store.select(c)
    store.select(other)
    store.select(b)
    assert shown(store, chat) == ["a", "b", "c"]


def test_siblings_of_first_messages_stay_in_their_chat(store: ChatStore, chat: int) -> None:
    (one,) = say(store, chat, None, "one")
    say(store, store.new_chat(ChatSettings()).id, None, "elsewhere")
    assert store.siblings(one) == [one]
    assert store.branches(chat) == {}


def test_deleting_takes_all_below_along_and_undo_brings_it_back(store: ChatStore, chat: int) -> None:
    _, b, _ = say(store, chat, None, "a", "b", "c")
    store.delete_message(b)
    assert shown(store, chat) == ["a"]
    assert store.search("c", chat) == []
    store.restore_message(b)
    assert shown(store, chat) == ["a", "b", "c"]


def test_deleting_the_branch_shown_shows_the_one_beside_it(store: ChatStore, chat: int) -> None:
    a, _, _ = say(store, chat, None, "a", "b", "c")
    (d,) = say(store, chat, a, "d")
    (e,) = say(store, chat, a, "e")
    store.select(d)
    store.delete_message(d)
    assert shown(store, chat) == ["a", "e"]
    store.delete_message(e)
    assert shown(store, chat) == ["a", "b", "c"]


def test_deleting_a_branch_that_is_not_shown_changes_nothing_shown(store: ChatStore, chat: int) -> None:
    a, b = say(store, chat, None, "a", "b")
    say(store, chat, a, "c")
    store.delete_message(b)
    assert shown(store, chat) == ["a", "c"]


def test_undo_brings_back_only_what_that_deletion_took(store: ChatStore, chat: int) -> None:
    a, b, c = say(store, chat, None, "a", "b", "c")
    store.delete_message(c)
    store.delete_message(b)
    with pytest.raises(NotFound, match="is not there"):
        store.restore_message(c)  # its parent is still gone
    store.restore_message(b)
    assert shown(store, chat) == ["a", "b"]
    store.restore_message(c)
    assert shown(store, chat) == ["a", "b", "c"]
    store.delete_message(a)
    assert shown(store, chat) == []


def test_writing_below_a_message_that_is_gone_is_refused(store: ChatStore, chat: int) -> None:
    a, b = say(store, chat, None, "a", "b")
    store.delete_message(b)
    with pytest.raises(NotFound, match="another window"):
        store.start_reply(chat, b)
    with pytest.raises(NotFound, match="not in chat"):
        store.add_message(store.new_chat(ChatSettings()).id, a, "user", "x")
    assert shown(store, chat) == ["a"]


def test_writing_in_a_deleted_chat_brings_it_back(store: ChatStore, chat: int) -> None:
    (a,) = say(store, chat, None, "a")
    store.delete_chats([chat])
    say(store, chat, a, "b")
    assert [entry.id for entry in store.chats()] == [chat]


def test_prompts_come_newest_first_and_once(store: ChatStore, chat: int) -> None:
    a, _, _, _ = say(store, chat, None, "one", "two", "one", "three")
    store.add_message(chat, a, "assistant", "not mine")
    store.add_message(chat, a, "user", "what was said so far", kind="summary")
    assert store.recent_prompts(2) == ["three", "one"]
    assert store.recent_prompts(10) == ["three", "one", "two"]


def test_a_copy_of_a_chat_has_the_same_branches(store: ChatStore, chat: int) -> None:
    a, b, _ = say(store, chat, None, "a", "b", "c")
    say(store, chat, a, "d")
    store.select(b)
    store.set_tags(chat, ["t"])
    copy = store.insert_chat(store.chat(chat), store.tree(chat))
    assert shown(store, copy) == ["a", "b", "c"]
    assert store.chat(copy).tags == ("t",)
    assert store.chat(copy).updated == store.chat(chat).updated
    assert [message.text for message in store.tree(copy)] == ["a", "b", "c", "d"]
    assert {message.chat_id for message in store.tree(copy)} == {copy}
