"""How quick the terminal app is: the real command in a pseudo-terminal, on stores filled for it in a temporary folder.

    python scripts/ui_speed.py --target TARGET.gguf --draft DRAFT.gguf [--json FILE] [--only frame,echo,cost,long,memory]

Without --target and --draft tiny models are written, which says nothing about `echo` and `cost` on a real pair. What is
measured, each with the goal it has:

- frame: process start to the first painted prompt, with 1,000 chats of 50 messages; median (< 0.7 s)
- echo: key to its echo on the terminal while a reply streams; p50, p95 (< 50 ms)
- cost: tokens/s of one greedy request in the chat against `paceline ask`, run by run in turns; ratio of medians (> 0.97)
- long: opening a chat of 5,000 messages, Enter in the list to its last message (< 1 s); a page up to its last byte
- memory: memory of the app's own process over 100 replies of a tiny model, after 150 that fill the caches; slope per reply (flat)

Run it on a machine that does nothing else: it measures what a user waits for, and the engine's speed.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from app.chat.conversation import Message  # noqa: E402 - found through the line above
from app.settings import ChatSettings  # noqa: E402
from app.store import ChatStore  # noqa: E402
from tests import tiny_models  # noqa: E402
from tests.e2e.conftest import Home  # noqa: E402
from tests.e2e.terminal import KEYS, Terminal  # noqa: E402

CHATS, MESSAGES, LONG_CHAT, REPLIES, SETTLED = 1_000, 50, 5_000, 250, 150
"""`SETTLED`: replies before the slope begins. Textual keeps the drawings of some 1,000 widgets, gone ones too: 115 replies."""
QUESTION = "Write a long story about a lighthouse keeper who repairs clocks. Take your time."
WORDS = tuple(["the", "clock", "in", "the", "tower", "struck", "once", "and", "the", "keeper", "wrote", "it", "down", "before", "the", "tide", "came", "back"])
PROMPT = b"Ask something"
LAST = "the very last message"
QUIET = 0.08
"""Seconds without output after which a frame is whole."""

Result = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """What was asked for, and the folder to work in."""

    folder: Path
    target: Path
    draft: Path | None
    tiny: Path
    threads: int | None
    count: int
    tokens: int
    mode: str

    def home(self, name: str, settings: str = "") -> Home:
        home = Home(self.folder / name, self.target, self.draft or self.target)
        home.paths.config.mkdir(parents=True)
        (home.paths.config / "settings.toml").write_text(f"auto_title = false\n{settings}")
        return home

    def loading(self, target: Path | None = None) -> list[str]:
        """The arguments that load the pair, or another target alone."""
        draft = "none" if target is not None or self.draft is None else str(self.draft)
        threads = ["--threads", str(self.threads)] if self.threads else []
        return ["--target", str(target or self.target), "--draft", draft, "--ctx", "4096", *threads]


# ---- the terminal


@contextmanager
def chat(home: Home, *args: str) -> Iterator[Terminal]:
    terminal = Terminal(120, 40, [sys.executable, "-m", "app", "chat", *args], environ(home), ROOT, emulated=False)
    try:
        yield terminal
    finally:
        terminal.close()


def environ(home: Home) -> dict[str, str]:
    """Modules are compiled once, as they are where Paceline is installed, and kept out of the working tree."""
    ours = {name: value for name, value in home.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return ours | {"PYTHONPYCACHEPREFIX": str(home.path.parent / "compiled")}


def until(terminal: Terminal, text: bytes, since: int) -> float:
    """The time at which `text` was written, of what came after `since` bytes."""
    end = monotonic() + 300
    while text not in terminal.raw[since:]:
        if monotonic() > end or terminal.process.poll() is not None:
            raise SystemExit(f"waited in vain for {text!r}; the last that was drawn: {terminal.raw[-300:]!r}")
        terminal.read(0.05)
    return perf_counter()


def quiet(terminal: Terminal) -> float:
    """Read until a frame is whole; the time of its last byte."""
    last = perf_counter()
    while terminal.read(QUIET):
        last = perf_counter()
    return last


def press(terminal: Terminal, key: str) -> tuple[int, float]:
    """Press a key; how much was written before, and when it was pressed."""
    since, start = len(terminal.raw), perf_counter()
    terminal._write(KEYS.get(key, key).encode())
    return since, start


def ask(terminal: Terminal, text: str) -> int:
    """Send a message; how much was written before it."""
    terminal.type(text)
    quiet(terminal)
    return press(terminal, "enter")[0]


# ---- stores


def fill(store: ChatStore, chats: int, messages: int, last: str = "") -> None:
    """Chats of `messages` messages of some 40 words, with code and lists among them."""
    draw = random.Random(0)
    for number in range(chats):
        chat = store.new_chat(ChatSettings(), f"Chat {number}")
        texts = [text(draw, at) for at in range(messages)]
        if last:
            texts[-1] = last
        rows = [
            Message(at + 1, chat.id, at or None, "user" if at % 2 == 0 else "assistant", each, 1.7e9 + at)
            for at, each in enumerate(texts)
        ]
        store.insert_chat(replace(chat, leaf_id=messages, updated=1.7e9 + number), rows)
        store.delete_chats([chat.id])


def text(draw: random.Random, at: int) -> str:
    words = " ".join(draw.choices(WORDS, k=40))
    return f"{words}\n\n```python\nfor n in range({at}):\n    print(n)\n```\n\n- one\n- **two**" if at % 10 == 9 else words


# ---- what is measured


def frame(run: Run) -> Result:
    home = run.home("frame")
    store = ChatStore.open(home.paths.chat_store)
    fill(store, CHATS, MESSAGES)
    store.close()
    seconds = []
    for _ in range(run.count + 1):
        start = perf_counter()
        with chat(home, *run.loading(run.tiny)) as terminal:
            seconds.append(until(terminal, PROMPT, 0) - start)
            terminal._write(KEYS["ctrl+q"].encode())
            terminal.ended()
    seconds.pop(0)  # compiled the modules
    return {"median_s": statistics.median(seconds), "worst_s": max(seconds), "runs": run.count}


def echo(run: Run) -> Result:
    home = run.home("echo", '[chat]\ntemperature = 0.0\nmax_tokens = 100000\n')
    draw, milliseconds = random.Random(0), []
    with chat(home, *run.loading()) as terminal:
        until(terminal, b"4,096 context", 0)
        since = ask(terminal, QUESTION)
        until(terminal, b"tokens/s", since)
        typed = ""
        for at in range(20 * run.count):
            key = draw.choice("bcdfghjklmnpqrstvwxz")
            typed += key
            since, start = press(terminal, key)
            milliseconds.append(1000 * (until(terminal, typed[-12:].encode(), since) - start))
            end = monotonic() + draw.uniform(0.08, 0.25)
            while monotonic() < end:
                terminal.read(0.02)
            if at % 60 == 59:
                press(terminal, "ctrl+u")
                quiet_for(terminal, 0.5)
                typed = ""
        replying = home.messages()[-1].state == "streaming"
    cuts = statistics.quantiles(milliseconds, n=20)
    return {
        "p50_ms": statistics.median(milliseconds), "p95_ms": cuts[-1], "worst_ms": max(milliseconds), "keys": len(milliseconds),
        "reply_streamed_to_the_end": replying,
    }


def quiet_for(terminal: Terminal, seconds: float) -> None:
    end = monotonic() + seconds
    while monotonic() < end:
        terminal.read(0.05)


def cost(run: Run) -> Result:
    home = run.home("cost", f'[chat]\ntemperature = 0.0\nmax_tokens = {run.tokens}\nmode = "{run.mode}"\n')
    sampling = ["--temperature", "0", "--max-tokens", str(run.tokens), "--mode", run.mode, "--json"]
    loading = run.loading(run.target if run.mode == "plain" else None)  # ask loads no draft then
    alone, in_chat = [], []
    for turn in range(run.count + 1):
        done = subprocess.run(
            [sys.executable, "-m", "app", "ask", *loading, *sampling, QUESTION], cwd=ROOT, env=environ(home), check=True,
            capture_output=True, text=True,
        )
        report = json.loads(done.stdout)
        with chat(home, *loading) as terminal:
            until(terminal, b"4,096 context", 0)
            ask(terminal, QUESTION)
            while (reply := finished(home, turn + 1)) is None:  # looked at once nothing is drawn any more: a look takes a core
                while terminal.read(1.0):
                    sleep(0.1)  # so does every read; the terminal's buffer holds what comes meanwhile
            terminal._write(KEYS["ctrl+q"].encode())
            terminal.ended()
        assert reply.report is not None
        if turn:  # the first of each warms the disk's cache
            alone.append(report["timings"]["decode_tps"])
            in_chat.append(reply.report["timings"]["decode_tps"])
    return {
        "ask_tokens_per_second": alone, "chat_tokens_per_second": in_chat, "same_text": report["text"].strip() == reply.text.strip(),
        "ratio": statistics.median(in_chat) / statistics.median(alone),
        "ratio_by_turn": [ours / theirs for ours, theirs in zip(in_chat, alone, strict=True)],
    }


def finished(home: Home, chats: int) -> Message | None:
    """The reply of the last of so many chats, once it is complete."""
    store = ChatStore.open(home.paths.chat_store)
    try:
        known = store.chats()
        reply = store.path(known[0].id)[-1:] if len(known) == chats else []
    finally:
        store.close()
    return reply[0] if reply and reply[0].state in ("length", "complete") else None


def long(run: Run) -> Result:
    home = run.home("long")
    store = ChatStore.open(home.paths.chat_store)
    fill(store, 1, LONG_CHAT, LAST)
    store.close()
    opened, pages = [], []
    for _ in range(max(3, run.count // 2)):
        with chat(home, "--target", "none.gguf") as terminal:
            until(terminal, PROMPT, 0)
            quiet(terminal)
            until(terminal, b"Chat 0", press(terminal, "ctrl+o")[0])
            quiet(terminal)
            since, start = press(terminal, "enter")
            opened.append(until(terminal, LAST.encode(), since) - start)
            quiet(terminal)
            for _ in range(40):
                _, start = press(terminal, "pageup")
                terminal.read(2.0)
                pages.append(1000 * (quiet(terminal) - start))
    return {
        "open_median_s": statistics.median(opened), "open_worst_s": max(opened), "page_median_ms": statistics.median(pages),
        "page_p95_ms": statistics.quantiles(pages, n=20)[-1], "page_worst_ms": max(pages), "pages": len(pages),
    }


def memory(run: Run) -> Result:
    home = run.home("memory", "[chat]\ntemperature = 0.0\nmax_tokens = 60\n")
    kib = []
    with chat(home, *run.loading(run.tiny)) as terminal:
        until(terminal, b"4,096 context", 0)
        for number in range(REPLIES):
            ask(terminal, f"question {number}")
            while len(path := stored(home)) < 2 * number + 2 or path[-1].state == "streaming":
                quiet_for(terminal, 0.1)
            kib.append(psutil.Process(terminal.process.pid).memory_info().rss / 1024)
            terminal.raw = terminal.raw[-4096:]
    slope = statistics.linear_regression(range(REPLIES - SETTLED), kib[SETTLED:]).slope
    return {"first_mib": kib[0] / 1024, "settled_mib": kib[SETTLED] / 1024, "last_mib": kib[-1] / 1024, "kib_per_reply": slope}


def stored(home: Home) -> list[Message]:
    store = ChatStore.open(home.paths.chat_store)
    try:
        return [message for each in store.chats(limit=1) for message in store.path(each.id)]
    finally:
        store.close()


# ---- the command

MEASURED: dict[str, Callable[[Run], Result]] = {"frame": frame, "echo": echo, "cost": cost, "long": long, "memory": memory}
GOALS: dict[str, tuple[str, Callable[[Result], bool]]] = {
    "frame": ("median < 0.7 s", lambda r: r["median_s"] < 0.7),
    "echo": ("p95 < 50 ms", lambda r: r["p95_ms"] < 50),
    "cost": ("ratio > 0.97", lambda r: r["ratio"] > 0.97),
    "long": ("opens in < 1 s", lambda r: r["open_median_s"] < 1.0),
    "memory": ("< 20 KiB per reply", lambda r: r["kib_per_reply"] < 20),
}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--target", type=Path)
    options.add_argument("--draft", type=Path)
    options.add_argument("--threads", type=int)
    options.add_argument("--count", type=int, default=7, help="runs of frame and cost; 20 keys of echo for each (default 7)")
    options.add_argument("--tokens", type=int, default=150, help="reply length of cost (default 150)")
    options.add_argument("--mode", default="plain", help="of cost; plain has the least noise (default)")
    options.add_argument("--only", default=",".join(MEASURED), help="comma-separated names")
    options.add_argument("--json", type=Path, help="write the figures there too")
    given = options.parse_args()
    if unknown := set(given.only.split(",")) - set(MEASURED):
        options.error(f"there is no {', '.join(sorted(unknown))}")
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory(prefix="ui-speed-") as folder:
        tiny = tiny_models.tiny_target(Path(folder), context=4096)
        target, draft = (given.target.resolve(), given.draft and given.draft.resolve()) if given.target else (tiny, tiny_models.noisy_copy(tiny, 0.05))
        run = Run(Path(folder), target, draft, tiny, given.threads, given.count, given.tokens, given.mode)
        for name in given.only.split(","):
            started = monotonic()
            results[name] = MEASURED[name](run)
            goal, met = GOALS[name]
            figures = ", ".join(f"{key} {value:.3g}" for key, value in results[name].items() if isinstance(value, int | float))
            print(f"{name:8}{goal:22}{'met' if met(results[name]) else 'MISSED':8}{figures}   ({monotonic() - started:.0f} s)", flush=True)
            sleep(1)
    if given.json:
        about = {"cores": psutil.cpu_count(), "load": psutil.getloadavg(), "target": run.target.name, "mode": run.mode}
        given.json.write_text(json.dumps({"about": about, **results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
