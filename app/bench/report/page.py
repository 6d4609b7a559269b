"""The HTML page of a result: one file, no script, nothing fetched. Whatever a result quotes is escaped."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from itertools import count
from typing import Any

from app.bench.report.plots import Plot, rendered
from app.bench.result import READING, Result
from app.bench.statistics import ALL
from app.bench.summary import summaries
from app.bench.tables import gigabytes, interval, text
from app.sanitize import sanitize

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; color: #222; background: #fff;
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; }
p.about, figcaption, p.note { color: #555; font-size: .9rem; }
figure { margin: 0 0 1rem; } figure svg { width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th { text-align: right; font-weight: 600; border-bottom: 2px solid #888; padding: .2rem .6rem; white-space: nowrap; }
td { text-align: right; padding: .15rem .6rem; white-space: nowrap; } td.name, th.name { text-align: left; }
tr.first td { border-top: 1px solid #ddd; } td.below { color: #a33b00; } td.above { color: #005a8c; }
.holds { color: #00633f; } .fails { color: #a33b00; font-weight: 600; }
pre { background: #f6f6f6; padding: .8rem; font-size: .78rem; white-space: pre-wrap; overflow-wrap: anywhere; }
"""
_ID = re.compile(r'(\bid="|url\(#|href="#)([^")]+)')


def html(result: Result, plots: Sequence[Plot]) -> str:
    """The whole page."""
    made = result.manifest
    models = [facts["path"].replace("\\", "/").rsplit("/", 1)[-1] for facts in made["models"].values() if facts]
    machine = made["machine"]
    about = [
        " + ".join(dict.fromkeys(models)), f"{machine['cpu']}, {machine['cores']} cores",
        ", ".join(gpu["description"] for gpu in machine["gpus"]) or "no GPU in use",
        f"{len(result.rows)} replies to {made['prompts']['count']} prompts", made["created"],
    ]
    parts = [
        f"<h1>Paceline bench</h1><p class=about>{_safe(' · '.join(about))}</p>",
        _ended(result.ended),
        _verdicts(result),
        *(_figure(plot, number) for plot, number in zip(plots, count(1), strict=False)),
        "<h2>All figures</h2>", f"<p class=note>{_safe(READING)}</p>", _table(result), _skipped(result),
        "<h2>What it was made with</h2>", f"<pre>{_safe(json.dumps(made, indent=1, ensure_ascii=False))}</pre>",
    ]
    return (
        f"<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Paceline bench</title><style>{STYLE}</style></head><body>\n" + "\n".join(filter(None, parts)) + "\n</body></html>\n"
    )


def _figure(plot: Plot, number: int) -> str:
    svg = rendered(plot, "svg").decode()
    svg = svg[svg.index("<svg"):]
    svg = _ID.sub(rf"\g<1>p{number}-\g<2>", svg)  # ids of two plots must not meet in one document
    label = f'<svg role="img" aria-label="{_safe(plot.title)}"'
    return f"<figure><h2>{_safe(plot.title)}</h2>{svg.replace('<svg', label, 1)}<figcaption>{_safe(plot.caption)}</figcaption></figure>"


def _verdicts(result: Result) -> str:
    if not result.verdicts:
        return ""
    lines = [
        f"<li class={'holds' if verdict.holds else 'fails'}>{'holds' if verdict.holds else 'fails'}: "
        f"{_safe(verdict.rule)} [{_safe(verdict.place)}]: {_safe(verdict.words)}</li>"
        for verdict in result.verdicts
    ]
    return f"<h2>Required</h2><ul>{''.join(lines)}</ul>"


def _ended(why: str) -> str:
    words = {
        "budget": "The time was up before everything was as precise as wanted.", "stopped": "The run was stopped before its end.",
        "": "The run did not come to its end.",
    }
    return f"<p class=fails>{words[why]}</p>" if why in words else ""


def _skipped(result: Result) -> str:
    if not result.skipped:
        return ""
    lines = [f"<li>{_safe(skip.question_id)}, {_safe(skip.config)}: {_safe(skip.reason)}</li>" for skip in result.skipped]
    return f"<h2>Skipped</h2><ul>{''.join(lines)}</ul>"


def _table(result: Result) -> str:
    headings = (
        "tokens/s", "× baseline", "95 %", "noise", "worst", "tail", "kept", "a round", "first token, ms", "gap p95, ms", "outside llama.cpp",
        "memory", "J/token", "same text",
    )
    lines = [f"<tr><th class=name>category<th class=name>configuration{''.join(f'<th>{heading}' for heading in headings)}</tr>"]
    for category, modes in summaries(result.rows, result.configs).items():
        for index, (name, entry) in enumerate(modes.items()):
            title = "" if index else "all prompts" if category == ALL else category
            cells = "".join(f"<td{_tone(entry['ratio']) if place == 1 else ''}>{cell}" for place, cell in enumerate(_cells(entry)))
            lines.append(f"<tr{' class=first' if index == 0 else ''}><td class=name>{_safe(title)}<td class=name>{_safe(name)}{cells}</tr>")
    return f"<div class=wide><table>{''.join(lines)}</table></div>"


def _cells(entry: Mapping[str, Any]) -> tuple[str, ...]:
    ratio = entry["ratio"]
    return (
        text(entry["tokens_per_second"], ".1f"), text(ratio["median"], ".3f"), interval(ratio["low"], ratio["high"]),
        interval(ratio["noise_low"], ratio["noise_high"]), text(ratio["worst"], ".2f"), text(ratio["tail"], ".2f"),
        text(entry["acceptance_rate"], ".0%"), text(entry["tokens_per_round"], ".2f"), text(entry["ttft_ms"]["median"], ".0f"),
        text(entry["itl_ms"]["p95"], ".0f"), text(entry["outside_llama_share"], ".1%"), gigabytes(entry["peak_rss_bytes"]),
        text(entry["joules_per_token"], ".2f"), text(entry["same_text_as_baseline"], ".0%"),
    )


def _tone(ratio: Mapping[str, Any]) -> str:
    """Colour only for what the interval leaves no doubt about."""
    if ratio["low"] is None:
        return ""
    return " class=above" if ratio["low"] > 1 else " class=below" if ratio["high"] < 1 else ""


def _safe(value: str) -> str:
    return escape(sanitize(value))
