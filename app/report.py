"""The numbers of one reply, as one JSON object and as a short table. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from app import __version__
from app.tune.store import in_words
from app.units import gb

if TYPE_CHECKING:
    from rich.table import Table

    from engine import Finished


def answer_json(
    finished: Finished, load_seconds: float, models: Mapping[str, Any], tuned: Mapping[str, Any]
) -> dict[str, Any]:
    """What `ask --json` prints: the engine's report and what only the app knows. tuned: settings in use that `paceline tune`
    found."""
    report = dict(finished.report)
    return {
        "text": finished.text,
        "finish_reason": finished.reason,
        "usage": report.pop("usage"),
        "timings": {"load_ms": round(load_seconds * 1000, 1), **report.pop("timings")},
        **{name: value for name, value in report.items() if name not in ("finish_reason", "seed")},
        "models": dict(models),
        "tuned": dict(tuned),
        "seed": report.get("seed"),
        "version": __version__,
    }


def stats_table(finished: Finished, load_seconds: float, tuned: Mapping[str, Any]) -> Table:
    """What `ask --stats` shows: label and value, one fact a line."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for label, value in stats_lines(finished.report, load_seconds, tuned):
        table.add_row(label, value)
    return table


def stats_lines(report: Mapping[str, Any], load_seconds: float, tuned: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The table's content. A number that was not measured is left out, not shown as zero."""
    usage, timings, speculation = report["usage"], report["timings"], report["speculation"]
    lines = [
        ("speed", _joined(_number(timings.get("decode_tps"), "tokens/s"), f"{usage['completion_tokens']} tokens")),
        ("first token", _joined(_number(timings.get("ttft_ms"), "ms"), f"load {load_seconds:.1f} s")),
        ("prompt", _joined(
            f"{usage['prompt_tokens']} tokens", f"{usage['cached_tokens']} reused",
            _number(timings.get("prefill_tps"), "tokens/s"),
        )),
    ]
    if gaps := timings.get("itl_ms"):
        lines.append(("between tokens", _joined(*(_number(gaps.get(p), f"ms {p}") for p in ("p50", "p95", "p99")))))
    drafted = _joined(
        f"{speculation['mode']}", f"{speculation['rounds']} rounds",
        _number(speculation.get("tokens_per_round"), "tokens a round", digits=2),
    )
    lines.append(("drafting", drafted))
    if speculation.get("drafted"):
        kept = f"{speculation['accepted']} of {speculation['drafted']} drafted tokens"
        lines.append(("kept", _joined(kept, f"{speculation['acceptance_rate']:.0%}")))
    lines.append(("", str(speculation.get("state") or "")))
    if peak := report.get("memory", {}).get("peak_rss_bytes"):
        lines.append(("memory", f"{gb(peak, 2)} GB peak"))
    lines.append(("tuned", in_words(tuned)))
    return [(label, value) for label, value in lines if value]


def _joined(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part)


def _number(value: float | None, unit: str, digits: int = 1) -> str | None:
    return None if value is None else f"{value:.{digits}f} {unit}"
