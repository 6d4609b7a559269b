"""`paceline chats`: the saved chats from a pipe. Listing, searching, export, import, deleting."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from app.store import ChatStore

CHAT_ID = COUNT = click.IntRange(1, 2**63 - 1)
"""As far as the store counts."""

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
STDIN = "-"


@click.group()
def chats() -> None:
    """List, search, export, import and delete saved chats."""


@chats.command("list")
@click.option("--tag", help="Only chats with this tag.")
@click.option("--limit", default=50, show_default=True, type=COUNT, help="At most so many.")
@as_json_option
def list_(tag: str | None, limit: int, as_json: bool) -> None:
    """Show the chats: pinned ones first, then the last used."""
    from app.sanitize import sanitize
    from app.tables import table
    from app.terminal import print_table, say, write_out

    with _store(reading=True) as store:
        found = store.chats(tag=tag, limit=limit)
    if as_json:
        write_out(json.dumps([
            {"id": c.id, "title": c.title, "created": _iso(c.created), "updated": _iso(c.updated), "pinned": c.pinned,
             "tags": list(c.tags), "messages": c.messages, "last_line": c.last_line}
            for c in found
        ]) + "\n")
    elif not found:
        say("no chats yet" if tag is None else f"no chats with the tag {tag}")
    else:
        print_table(table(("id", "chat", "messages", "last used", ""), [
            (str(c.id), sanitize(c.title or c.last_line[:60]) or "(empty)", str(c.messages), _date(c.updated),
             " ".join((*(["pinned"] if c.pinned else []), *(f"#{sanitize(tag)}" for tag in c.tags))))
            for c in found
        ]))


@chats.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--chat", "chat_id", type=CHAT_ID, help="Only in this chat.")
@click.option("--limit", default=20, show_default=True, type=COUNT, help="At most so many.")
@as_json_option
def search(words: tuple[str, ...], chat_id: int | None, limit: int, as_json: bool) -> None:
    """Find the messages that hold all WORDS, or parts of words; the latest first."""
    from app.errors import AppError
    from app.sanitize import sanitize
    from app.tables import table
    from app.terminal import print_table, write_out

    query = " ".join(words)
    with _store(reading=True) as store:
        hits = store.search(query, chat_id, limit)
    lines = [sanitize("".join(piece for piece, _ in hit.snippet)) for hit in hits]
    if as_json:
        write_out(json.dumps([
            {"chat": hit.chat_id, "message": hit.message_id, "title": hit.title, "role": hit.role, "created": _iso(hit.created),
             "text": line, "hits": [piece for piece, found in hit.snippet if found]}
            for hit, line in zip(hits, lines, strict=True)
        ]) + "\n")
    elif not hits:
        raise AppError(f"nothing holds {query!r}")
    else:
        rows = [(str(hit.chat_id), sanitize(hit.title), line) for hit, line in zip(hits, lines, strict=True)]
        print_table(table(("id", "chat", "text"), rows))


@chats.command()
@click.argument("ids", nargs=-1, type=CHAT_ID)
@click.option("--all", "everything", is_flag=True, help="Every chat.")
@click.option("--format", "form", type=click.Choice(["markdown", "json"]), help="JSON holds everything and can be imported.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A file ending in .md or .json, or a folder.")
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
def export(ids: tuple[int, ...], everything: bool, form: str | None, output: Path | None, force: bool) -> None:
    """Write chats as Markdown (the default) or JSON, to standard output or a file."""
    from app.errors import AppError
    from app.terminal import say, write_out
    from app.transfer import export_chats, save_export

    if bool(ids) == everything:
        raise click.UsageError("name the chats by their ids (see `paceline chats list`), or say --all")
    with _store(reading=True) as store:
        if everything:
            ids = tuple(chat.id for chat in store.chats(limit=sys.maxsize))
        if not ids:
            raise AppError("there are no chats to export")
        if output is None:
            write_out(export_chats(store, ids, "json" if form == "json" else "markdown"))
        else:
            if form is not None and not output.is_dir() and {"markdown": ".md", "json": ".json"}[form] != output.suffix.lower():
                raise click.UsageError(f"--format {form} and a file named {output.name} do not go together")
            say(f"written to {save_export(store, ids, output, replace=force)}")


@chats.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True))
@as_json_option
def import_(files: tuple[Path, ...], as_json: bool) -> None:
    """Read chats from FILES (- is standard input): Paceline's JSON, ChatGPT's export (conversations.json or the .zip),
    LM Studio's .conversation.json."""
    from app.terminal import FractionBar, say, write_out
    from app.transfer import import_bytes, import_file

    with _store() as store:
        for path in files:
            with FractionBar() as bar:
                if str(path) == STDIN:
                    done = import_bytes(store, sys.stdin.buffer.read(), "standard input", lambda f: bar.show("importing", f))
                else:
                    done = import_file(store, path, lambda f: bar.show("importing", f))
            say(f"{path}: {done.summary}" if len(files) > 1 else done.summary)
            if as_json:
                write_out(json.dumps({"file": str(path), "chats": done.chat_ids, "messages": done.messages,
                                      "left_out": done.left_out, "unreadable": done.unreadable}) + "\n")


@chats.command()
@click.argument("ids", nargs=-1, required=True, type=CHAT_ID)
@click.option("--undo", is_flag=True, help="Bring them back.")
@click.option("--forever", is_flag=True, help="Erase them at once; there is no way back.")
def delete(ids: tuple[int, ...], undo: bool, forever: bool) -> None:
    """Delete chats by their ids. They can be brought back with --undo until they are erased, 30 days later."""
    from app.terminal import say

    if undo and forever:
        raise click.UsageError("--undo and --forever do not go together")
    with _store() as store:
        if undo:
            store.restore_chats(ids)
            for chat_id in ids:
                store.chat(chat_id)  # or it was erased
            say(f"back: {_numbers(ids)}")
            return
        if forever:
            gone = store.erase_chats(ids)
            say(f"erased: {_numbers(gone)}")
            return
        for chat_id in ids:
            store.chat(chat_id)
        store.delete_chats(ids)
        say(f"deleted: {_numbers(ids)}; `paceline chats delete --undo {_numbers(ids)}` brings them back")


@contextmanager
def _store(*, reading: bool = False) -> Iterator[ChatStore]:
    """The user's chats. For `reading`, a store that cannot be written (a read-only home) will do."""
    from app.paths import Paths
    from app.store import ChatStore, StoreError
    from app.terminal import say

    path = Paths.find().chat_store
    try:
        store = ChatStore.open(path)
    except StoreError as error:
        if not reading or not path.exists():
            raise
        say(f"{error}. Here is what can be read of it.")
        store = ChatStore.copy_of(path)
    try:
        yield store
    finally:
        store.close()


def _numbers(ids: tuple[int, ...] | list[int]) -> str:
    return " ".join(map(str, ids)) or "none"


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")
