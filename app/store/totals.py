"""What the replies of a chat cost and gained, added up from the reports saved with them."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field, replace
from typing import Any

from app.store.base import Part


@dataclass(frozen=True, slots=True)
class DrafterTotals:
    """One drafter's share."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0

    @property
    def acceptance_rate(self) -> float | None:
        return self.accepted / self.drafted if self.drafted else None


@dataclass(frozen=True, slots=True)
class ChatTotals:
    """All replies on all branches, as far as they have a report. Times in seconds."""

    messages: int = 0
    branches: int = 0
    """Ways from the first message to a last one."""
    replies: int = 0
    """Those with a report."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Of the prompt tokens, those that did not have to be read again."""
    completion_tokens: int = 0
    prompt_seconds: float = 0.0
    """Until the first token."""
    decode_seconds: float = 0.0
    decoded: float = 0.0
    """Tokens that these went into: not the first of each reply, but the one that ends it."""
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    by_drafter: dict[str, DrafterTotals] = field(default_factory=dict)
    drafted_by_position: tuple[int, ...] = ()
    accepted_by_position: tuple[int, ...] = ()
    """How many rounds drafted, and how many kept, a token at position 1, 2, ..."""

    @property
    def seconds(self) -> float:
        return self.prompt_seconds + self.decode_seconds

    @property
    def acceptance_rate(self) -> float | None:
        return self.accepted / self.drafted if self.drafted else None

    @property
    def tokens_per_second(self) -> float | None:
        """Of decoding."""
        return self.decoded / self.decode_seconds if self.decode_seconds > 0 and self.decoded > 0 else None


class Totals(Part):
    """The part of the store that adds up."""

    def totals(self, chat_id: int) -> ChatTotals:
        """Of a chat without replies: all zero. A report that lacks a number counts as 0 there."""
        counts = self._db.row(
            "SELECT count(*), count(*) FILTER (WHERE NOT EXISTS"
            " (SELECT 1 FROM messages c WHERE c.chat_id = m.chat_id AND c.parent_id = m.id AND c.deleted IS NULL))"
            " FROM messages m WHERE chat_id = ? AND deleted IS NULL",
            (chat_id,),
        )
        rows = self._db.rows(
            "SELECT report FROM messages WHERE chat_id = ? AND deleted IS NULL AND report IS NOT NULL", (chat_id,)
        )
        totals = add_up([json.loads(row[0]) for row in rows])
        return replace(totals, messages=counts[0], branches=counts[1]) if counts else totals


def add_up(reports: list[dict[str, Any]]) -> ChatTotals:
    """The totals of reports in the engine's form."""

    def total(part: str, name: str) -> Any:
        return sum(_part(report, part).get(name) or 0 for report in reports)

    timings = [_part(report, "timings") for report in reports]
    drafters = sorted({name for report in reports for name in _part(_part(report, "speculation"), "by_drafter")})
    return ChatTotals(
        replies=len(reports),
        prompt_tokens=total("usage", "prompt_tokens"),
        cached_tokens=total("usage", "cached_tokens"),
        completion_tokens=total("usage", "completion_tokens"),
        prompt_seconds=total("timings", "ttft_ms") / 1000,
        decode_seconds=total("timings", "decode_seconds"),
        decoded=sum((each.get("decode_tps") or 0) * (each.get("decode_seconds") or 0) for each in timings),
        rounds=total("speculation", "rounds"),
        drafted=total("speculation", "drafted"),
        accepted=total("speculation", "accepted"),
        by_drafter={name: _drafter(reports, name) for name in drafters},
        drafted_by_position=_by_position(reports, "drafted_by_position"),
        accepted_by_position=_by_position(reports, "accepted_by_position"),
    )


def _drafter(reports: list[dict[str, Any]], name: str) -> DrafterTotals:
    shares = [_part(_part(_part(report, "speculation"), "by_drafter"), name) for report in reports]
    return DrafterTotals(*(sum(share.get(key) or 0 for share in shares) for key in ("rounds", "drafted", "accepted")))


def _by_position(reports: list[dict[str, Any]], name: str) -> tuple[int, ...]:
    lists = [counts for report in reports if isinstance(counts := _part(report, "speculation").get(name), list)]
    return tuple(sum(column) for column in itertools.zip_longest(*lists, fillvalue=0))


def _part(report: dict[str, Any], name: str) -> dict[str, Any]:
    part = report.get(name)
    return part if isinstance(part, dict) else {}
