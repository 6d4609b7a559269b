from __future__ import annotations

from app.settings import ChatSettings
from app.store import ChatStore, find_chats


def test_chats_come_with_the_place_where_they_were_found(store: ChatStore) -> None:
    cats, dogs = (store.new_chat(ChatSettings(), title).id for title in ("Cats", "Dogs"))
    first = store.add_message(cats, None, "user", "fur and paws")
    store.add_message(dogs, None, "user", "a bone and paws")
    last = store.add_message(cats, first.id, "assistant", "soft paws")
    (found, other), words = find_chats(store, "paws", 10)
    assert (found.chat.id, found.hits, other.chat.id, other.hits) == (cats, 2, dogs, 1)
    assert found.hit is not None
    assert found.hit.message_id == last.id
    assert words.marked("two paws") == (("two ", False), ("paws", True))
    (found,), _ = find_chats(store, "dogs", 10)
    assert (found.chat.id, found.hit) == (dogs, None)
    assert len(find_chats(store, "", 1)[0]) == 1


def test_a_tag_at_the_start_keeps_its_chats(store: ChatStore) -> None:
    cats, dogs = (store.new_chat(ChatSettings(), title).id for title in ("Cats", "Dogs"))
    store.set_tags(cats, ["Soft Pets"])
    assert [found.chat.id for found in find_chats(store, "#soft-pets", 10)[0]] == [cats]
    assert find_chats(store, "#soft-pets dogs", 10)[0] == []
    store.rename(dogs, "Why #python")
    assert [found.chat.id for found in find_chats(store, "#python", 10)[0]] == [dogs]  # no tag: a word
