from __future__ import annotations

from pathlib import Path

import pytest

from app.settings import ChatSettings
from app.store import ChatStore, NotFound


def titles(store: ChatStore, **wanted: object) -> list[str]:
    return [chat.title for chat in store.chats(**wanted)]  # type: ignore[arg-type]


def add(store: ChatStore, title: str, text: str = "hello") -> int:
    chat = store.new_chat(ChatSettings(), title)
    store.add_message(chat.id, None, "user", text)
    return chat.id


def test_what_belongs_to_a_chat_is_kept(store: ChatStore, path: Path) -> None:
    settings = ChatSettings(system="Be brief \N{WAVING HAND SIGN}", temperature=0.7, stop=("END",), seed=3)
    chat = store.new_chat(settings, "First")
    store.set_unsent(chat.id, "half a thou\nght")
    store.pin(chat.id, True)
    store.set_tags(chat.id, ["work", " home  office ", "work", ""])
    store.rename(chat.id, " Line\nbreaks  go ")
    again = ChatStore.open(path).chat(chat.id)
    assert (again.settings, again.unsent, again.pinned) == (settings, "half a thou\nght", True)
    assert (again.tags, again.title, again.leaf_id) == (("home office", "work"), "Line breaks go", None)
    store.set_settings(chat.id, ChatSettings())
    assert store.chat(chat.id).settings == ChatSettings()


def test_settings_that_are_not_taken_any_more_do_not_keep_a_chat_shut(store: ChatStore, chat: int) -> None:
    with store._db.writing() as db:
        db.execute("UPDATE chats SET settings = ?", ('{"temperature": -5, "unheard_of": 1}',))
    assert store.chat(chat).settings == ChatSettings()


def test_the_list_has_pinned_chats_first_and_then_the_latest(store: ChatStore) -> None:
    one, two, three = (add(store, title) for title in ("one", "two", "three"))
    assert titles(store) == ["three", "two", "one"]
    store.add_message(one, store.path(one)[-1].id, "user", "again")
    assert titles(store) == ["one", "three", "two"]
    store.pin(two, True)
    store.rename(three, "three!")  # no message: it stays where it is
    assert titles(store) == ["two", "one", "three!"]
    assert titles(store, limit=1, offset=1) == ["one"]


def test_a_list_entry_counts_messages_and_shows_the_last_on_one_line(store: ChatStore, chat: int) -> None:
    store.add_message(chat, None, "user", "first\n\n  second")
    (entry,) = store.chats()
    assert (entry.messages, entry.last_line) == (1, "first second")


def test_a_query_finds_titles_and_messages(store: ChatStore) -> None:
    add(store, "Über Äpfel"), add(store, "Fruit", "all about ÄPFEL and pears"), add(store, "Other")
    assert titles(store, query="äpfel") == ["Fruit", "Über Äpfel"]
    assert titles(store, query="äpfel pears") == ["Fruit"]
    assert titles(store, query="üb") == ["Über Äpfel"]
    assert titles(store, query="pe") == ["Fruit"]
    assert titles(store, query="   ") == ["Other", "Fruit", "Über Äpfel"]


def test_tags_filter_and_are_counted(store: ChatStore) -> None:
    one, two = add(store, "one"), add(store, "two")
    store.set_tags(one, ["b", "A"])
    store.set_tags(two, ["b"])
    assert store.tags() == [("A", 1), ("b", 2)]
    assert titles(store, tag="A") == ["one"]
    store.delete_chats([two])
    assert store.tags() == [("A", 1), ("b", 1)]


def test_deleting_can_be_undone_until_it_is_purged(store: ChatStore) -> None:
    one, two, three = (add(store, title, "needle") for title in ("one", "two", "three"))
    store.delete_chats([one, two])
    assert titles(store) == ["three"]
    assert [hit.chat_id for hit in store.search("needle")] == [three]
    with pytest.raises(NotFound, match="may have been deleted"):
        store.chat(one)
    store.restore_chats([one])
    assert titles(store) == ["three", "one"]
    assert store.purge(3600) == []
    assert store.purge(0) == [two]
    store.restore_chats([two])
    assert titles(store) == ["three", "one"]
    assert len(store.search("needle")) == 2


def test_an_id_is_never_used_twice(store: ChatStore) -> None:
    gone = add(store, "gone")
    store.delete_chats([gone])
    store.purge(0)
    assert add(store, "new") > gone


def test_what_was_purged_is_not_in_the_file(store: ChatStore, path: Path) -> None:
    gone = add(store, "gone", "a very private sentence")
    store.delete_chats([gone])
    store.purge(0)
    store.close()
    assert b"very private" not in path.read_bytes()


def test_a_long_branch_can_be_purged(store: ChatStore, chat: int) -> None:
    """Longer than SQLite follows a cascade."""
    parent = None
    for number in range(1100):
        parent = store.add_message(chat, parent, "user", str(number)).id
    first = store.path(chat)[0].id
    store.delete_message(first)
    assert store.path(chat) == []
    store.purge(0)
    with pytest.raises(NotFound, match="for good"):
        store.restore_message(first)


def test_chats_can_be_erased_at_once(store: ChatStore) -> None:
    one, two = add(store, "one", "needle"), add(store, "two", "needle")
    assert store.erase_chats([one, 99]) == [one]
    store.restore_chats([one])
    assert titles(store) == ["two"]
    assert [hit.chat_id for hit in store.search("needle")] == [two]


def test_only_what_was_deleted_is_purged(store: ChatStore) -> None:
    kept, gone = add(store, "kept", "first"), add(store, "gone")
    first = store.path(kept)[0]
    second = store.add_message(kept, first.id, "user", "second")
    store.delete_message(second.id)
    store.delete_chats([gone])
    assert store.purge() == []
    assert store.purge(0) == [gone]
    assert [message.text for message in store.path(kept)] == ["first"]
    with pytest.raises(NotFound, match="for good"):
        store.restore_message(second.id)


def test_changing_a_chat_that_was_purged_is_told(store: ChatStore, chat: int) -> None:
    store.delete_chats([chat])
    store.purge(0)
    for change in (
        lambda: store.rename(chat, "x"), lambda: store.set_tags(chat, ["x"]), lambda: store.path(chat),
        lambda: store.add_message(chat, None, "user", "x"),
    ):
        with pytest.raises(NotFound, match="for good"):
            change()
