"""What holds of the tree whatever is done to it, in any order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from app.settings import ChatSettings
from app.store import ChatStore, NotFound


class Tree(RuleBasedStateMachine):
    """Drives one chat and keeps beside it which messages are there, by the plainest means."""

    ids = Bundle("ids")

    @initialize()
    def begin(self) -> None:
        self.store = ChatStore.in_memory()
        self.chat = self.store.new_chat(ChatSettings()).id
        self.parents: dict[int, int | None] = {}
        self.gone: dict[int, set[int]] = {}
        """Deleted message to all that its deletion took."""

    def there(self, message_id: int | None) -> bool:
        return message_id is None or not any(message_id in taken for taken in self.gone.values())

    @rule(target=ids, parent=st.none() | ids, reply=st.booleans())
    def add(self, parent: int | None, reply: bool) -> int:
        try:
            if reply and parent is not None:
                made = self.store.start_reply(self.chat, parent).id
                self.store.finish_reply(made, f"reply {made}", (), "complete", None)
            else:
                made = self.store.add_message(self.chat, parent, "user", f"message {made_of(parent)}").id
        except NotFound:
            assert not self.there(parent)
            return parent or 0
        assert self.there(parent)
        self.parents[made] = parent
        assert self.path[-1] == made
        return made

    @rule(message=ids)
    def select(self, message: int) -> None:
        if self.there(message):
            self.store.select(message)
            assert message in self.path

    @rule(message=ids)
    def delete(self, message: int) -> None:
        if self.there(message):
            self.gone[message] = {i for i in self.parents if self.there(i) and message in self.upwards(i)}
            self.store.delete_message(message)
            assert message not in self.path

    @rule(message=ids)
    def restore(self, message: int) -> None:
        if message in self.gone and self.there(self.parents[message]):
            self.store.restore_message(message)
            del self.gone[message]
            assert message in self.path

    @invariant()
    def the_path_is_a_branch_of_what_is_there(self) -> None:
        path = self.path
        assert all(self.there(i) for i in path)
        assert [self.parents[i] for i in path] == [None, *path][: len(path)]
        assert {message.id for message in self.store.tree(self.chat)} == {i for i in self.parents if self.there(i)}
        assert bool(path) == any(self.there(i) for i in self.parents)

    @invariant()
    def siblings_and_branches_agree(self) -> None:
        beside = {i: [j for j in sorted(self.parents) if self.parents[j] == self.parents[i] and self.there(j)] for i in self.path}
        assert {i: self.store.siblings(i) for i in self.path} == beside
        assert self.store.branches(self.chat) == {i: ids for i, ids in beside.items() if len(ids) > 1}

    @invariant()
    def the_index_holds_what_the_messages_hold(self) -> None:
        with self.store._db.writing() as db:
            db.execute("INSERT INTO messages_text(messages_text) VALUES ('integrity-check')")

    def teardown(self) -> None:
        self.store.purge(0)
        assert {message.id for message in self.store.tree(self.chat)} == {i for i in self.parents if self.there(i)}
        self.the_index_holds_what_the_messages_hold()
        self.store.close()

    @property
    def path(self) -> list[int]:
        return [message.id for message in self.store.path(self.chat)]

    def upwards(self, message_id: int | None) -> list[int]:
        above = []
        while message_id is not None:
            above.append(message_id)
            message_id = self.parents[message_id]
        return above


def made_of(parent: int | None) -> str:
    return "first" if parent is None else f"below {parent}"


TestTree = Tree.TestCase
TestTree.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
