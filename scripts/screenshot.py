"""A picture of the chat for the README: ask one question on a real pair and save the screen as SVG, the pace panel open.

    python scripts/screenshot.py --target TARGET --draft DRAFT docs/chat.svg

It runs the app as a user does, but without a terminal, and keeps its chats in a folder that is thrown away. The SVG names
fonts that terminals use and loads none, so that it shows without a network and asks nobody for anything.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from app.options import LoadChoices
from app.paths import Paths
from app.settings import ChatSettings, Settings
from app.store import ChatStore
from app.tui.app import PacelineApp, Start

SIZE = (110, 34)
"""Columns and rows: the least width at which the pace panel stands at the side."""
QUESTION = "Write a Python function that merges two sorted lists, and explain in one sentence why it is linear."
FONTS = "ui-monospace, 'Cascadia Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"
PATIENCE = 1800.0
"""Seconds for loading the models and for the reply."""
_FONT_FACES = re.compile(r"@font-face\s*\{[^}]*\}\s*")
_FAMILIES = re.compile(r"font-family:\s*[^;]+;")


def self_contained(svg: str) -> str:
    """The SVG without the fonts it would load from the net, and with its spaces kept by every program that draws it."""
    svg = _FAMILIES.sub(f"font-family: {FONTS};", _FONT_FACES.sub("", svg))
    return svg.replace("<svg ", '<svg xml:space="preserve" ', 1)


async def picture(choices: LoadChoices, question: str, theme: str, settings: ChatSettings) -> str:
    """The screen after the reply to `question`, as SVG. Raises TimeoutError, RuntimeError."""
    real = Paths.find()
    with tempfile.TemporaryDirectory(prefix="paceline-") as folder:
        paths = replace(Paths.find({"PACELINE_HOME": folder}), models=real.models, profiles=real.profiles)
        store = ChatStore.open(paths.chat_store)
        app = PacelineApp(Start(paths, Settings(theme=theme, chat=settings, auto_title=False), store, choices))
        try:
            async with app.run_test(size=SIZE) as pilot, asyncio.timeout(PATIENCE):
                while app.host.state != "ready":
                    await asyncio.sleep(0.2)
                    if app.host.state in ("empty", "lost") and (why := app.chat_screen.activity.text):
                        raise RuntimeError(why)
                await pilot.pause()
                app.chat_screen.prompt.load(question)
                await pilot.press("enter")
                while not app.session.path or app.session.replying:
                    await asyncio.sleep(0.2)
                await pilot.press("ctrl+home")
                await pilot.pause(0.5)
                app.chat_screen.transcript.cursor = None
                app.clear_notifications()
                await pilot.pause(0.5)
                return self_contained(app.export_screenshot(title="Paceline"))
        finally:
            app.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", help="as for `paceline chat`; left out: the starter pair")
    parser.add_argument("--draft")
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--theme", default="dark")
    parser.add_argument("--max-tokens", type=int, default=220)
    parser.add_argument("svg", type=Path)
    given = parser.parse_args()
    choices = LoadChoices(target=given.target, draft=given.draft, offline=True)
    settings = ChatSettings(temperature=0.0, max_tokens=given.max_tokens)
    svg = asyncio.run(picture(choices, given.question, given.theme, settings))
    given.svg.write_text(svg, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
