"""What goes along with the text in the prompt: kept up to date while it is written. No widgets.

The text decides: a file is attached as long as its `@path` stands in it, a pasted text as long as its `[Pasted text ...]` does.
`gathered` reads the disk and may run in a thread; everything else belongs to the interface's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from app.chat.attachments import PASTED, Refused, mentions, pasted_name, pasted_names, read
from app.chat.conversation import Attachment

Item = Attachment | Refused
Stamp = tuple[int, int]

_UNSENT = "\x1e"
"""Between the text and the attachments of an unsent prompt; never in a text, which is stripped of controls."""


@dataclass(frozen=True, slots=True)
class Record:
    """One attachment as it was last read. Without a stamp it is not read again: pasted, or sent before."""

    item: Item
    stamp: Stamp | None = None


@dataclass(slots=True)
class Attached:
    """The attachments of one prompt, by name."""

    cwd: Path
    records: dict[str, Record] = field(default_factory=dict)
    """Of every text that was pasted and every file that is or was mentioned."""
    shown: tuple[str, ...] = ()
    """Names the text mentions now, without those that were left out."""
    left_out: set[str] = field(default_factory=set)

    def paste(self, text: str) -> str:
        """Keep a long pasted text; the mention that stands for it."""
        number = 1 + sum(name.startswith(PASTED) for name in self.records)
        name = pasted_name(number, text)
        self.records[name] = Record(Attachment(name, text))
        return f"[{name}]"

    def keep(self, attachments: Sequence[Attachment]) -> None:
        """Attachments of a message that is edited: their texts stay what they were."""
        self.records |= {attachment.name: Record(attachment) for attachment in attachments}

    def take(self, gathered: Mapping[str, Record]) -> list[Attachment]:
        """Show what `gathered` found; those that are not counted yet."""
        self.records |= gathered
        self.shown = tuple(gathered)
        return [item for item in self.attachments if item.tokens is None]

    def counted(self, name: str, text: str, tokens: int) -> None:
        """Note the token count of a text, unless it has changed meanwhile."""
        record = self.records.get(name)
        if record is not None and isinstance(record.item, Attachment) and record.item.text == text:
            self.records[name] = replace(record, item=replace(record.item, tokens=tokens))

    def leave_out(self, name: str) -> None:
        """Its mention is only words from now on."""
        self.left_out.add(name)
        self.shown = tuple(other for other in self.shown if other != name)

    def clear(self) -> None:
        self.records.clear()
        self.left_out.clear()
        self.shown = ()

    @property
    def items(self) -> list[Item]:
        return [self.records[name].item for name in self.shown]

    @property
    def attachments(self) -> list[Attachment]:
        return [item for item in self.items if isinstance(item, Attachment)]

    @property
    def refused(self) -> list[Refused]:
        return [item for item in self.items if isinstance(item, Refused)]


def gathered(text: str, attached: Attached) -> dict[str, Record]:
    """What `text` brings along, files read afresh where they changed on disk. Changes nothing; for a thread."""
    records = dict(attached.records)
    found = {name: records[name] for name in pasted_names(text) if name in records and name not in attached.left_out}
    for mention in mentions(text, attached.cwd):
        known = records.get(mention.typed)
        if mention.typed in attached.left_out:
            continue
        if known is not None and known.stamp is None:
            found[mention.typed] = known
            continue
        stamp = _stamp(mention.path)
        found[mention.typed] = known if known is not None and known.stamp == stamp else Record(read(mention), stamp)
    for name, record in records.items():  # sent before, and the file is gone by now
        if record.stamp is None and name not in attached.left_out and (f"@{name}" in text or f'@"{name}"' in text):
            found.setdefault(name, record)
    return found


def pack_unsent(text: str, attached: Attached) -> str:
    """Text and pasted texts as one string, to be kept; files are read again."""
    pasted = {
        name: record.item.text
        for name in pasted_names(text)
        if (record := attached.records.get(name)) is not None and isinstance(record.item, Attachment)
    }
    return text + _UNSENT + json.dumps(pasted) if pasted else text


def unpack_unsent(unsent: str) -> tuple[str, list[Attachment]]:
    """The reverse of pack_unsent."""
    text, mark, pasted = unsent.partition(_UNSENT)
    return text, [Attachment(name, full) for name, full in json.loads(pasted).items()] if mark else []


def _stamp(path: Path) -> Stamp:
    try:
        facts = path.stat()
    except OSError:
        return (0, 0)
    return (facts.st_mtime_ns, facts.st_size)
