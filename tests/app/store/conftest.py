"""A store on disk for each test, and small ways to fill it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.settings import ChatSettings
from app.store import ChatStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats" / "chats.db"


@pytest.fixture
def store(path: Path) -> Iterator[ChatStore]:
    opened = ChatStore.open(path)
    yield opened
    opened.close()


@pytest.fixture
def chat(store: ChatStore) -> int:
    return store.new_chat(ChatSettings()).id
