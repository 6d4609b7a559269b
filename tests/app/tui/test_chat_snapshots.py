"""How the chat looks, at three sizes and in two themes. After a wanted change: pytest --snapshot-update, and look at it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import TextArea

from app.chat.conversation import OriginSpan
from app.chat.events import ModelReady
from app.options import LoadChoices
from app.paths import Paths
from app.settings import ChatSettings, Settings
from app.store import ChatStore
from app.tui.app import PacelineApp, Start

Compare = Callable[..., bool]
PACE = {
    "tokens": 212, "tokens_per_second": 33.2, "reply_tokens_per_second": 33.2, "ratio_to_plain": 1.42,
    "acceptance_by_position": [0.86, 0.71, 0.55], "lengths": [4, 4, 0, 3, 16, 4], "draft_seconds": 1.2, "check_seconds": 4.1,
    "other_seconds": 0.3, "by_origin": {"target": 80, "model": 110, "ngram": 22}, "context_used": 1812, "context_size": 4096,
    "memory_bytes": 2_100_000_000, "state": "drafting 4 tokens at a time: 72 % are kept", "log": [],
}
REPLY = """<think>Short, with a table.</think>A **two-pointer merge**, see [the docs](https://docs.python.org/3/):

```python
def merge(left, right):
    return sorted(left + right)  # the short way
```

| Algorithm | Worst | Stable |
|:--|:-:|--:|
| Merge sort | n log n | yes |
| 插入排序 | n² | yes |

1. `<=` keeps equal elements in order.
2. 👍 שלום

[b]not bold[/b], [TODO] plan
"""


def app_with_a_chat(folder: Path, theme: str) -> PacelineApp:
    paths = Paths.find({"PACELINE_HOME": str(folder)})
    store = ChatStore.in_memory()
    chat = store.new_chat(ChatSettings(), "Merging sorted lists")
    asked = store.add_message(chat.id, None, "user", "Merge two sorted lists. [b]x[/b]")
    for text in ("Other.", REPLY):
        reply = store.start_reply(chat.id, asked.id)
        spans = [OriginSpan("model" if at % 2 else "target", min(9, len(text) - 9 * at)) for at in range(-(-len(text) // 9))]
        store.finish_reply(reply.id, text, spans, "complete", {"pace": PACE})
    app = PacelineApp(Start(paths, Settings(theme=theme), store, LoadChoices(target=str(folder / "none.gguf"), draft="none")))
    app.session.open(chat.id)
    return app


async def settle(pilot: Pilot[Any]) -> None:
    """As with a model: what the load that fails says holds the folder's name."""
    screen = pilot.app.chat_screen  # type: ignore[attr-defined]
    while "F5 loads" not in screen.activity.text:
        await pilot.pause(0.02)
    await screen.hear(ModelReady("qwen-1.5b-q4", "qwen-0.5b-q4", 4096, (), 1.0, "CPU"))
    for area in screen.query(TextArea):
        area.cursor_blink = False
    await pilot.pause(0.3)


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 50)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_a_chat(snap_compare: Compare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theme: str, size: tuple[int, int]) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    app = app_with_a_chat(tmp_path, theme)
    assert snap_compare(app, terminal_size=size, run_before=settle)
    app.close()


@pytest.mark.parametrize("keys", [["escape"], ["ctrl+t"], ["f11"]], ids=["selected", "thinking", "origins"])
def test_a_chat_after_a_key(snap_compare: Compare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: list[str]) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)

    async def press(pilot: Pilot[Any]) -> None:
        await settle(pilot)
        await pilot.press(*keys)
        await pilot.pause(0.3)

    app = app_with_a_chat(tmp_path, "dark")
    assert snap_compare(app, terminal_size=(100, 40), run_before=press)
    app.close()
