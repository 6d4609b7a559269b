"""The plots of a result. matplotlib without a display; colours of Okabe and Ito, which the colour-blind tell apart, and
markers and hatches so that a print in grey can be read as well."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter

from app.bench.at_once import load_summary
from app.bench.measurement import Measurement
from app.bench.result import Result
from app.bench.statistics import ALL, grouped
from app.bench.summary import PARTS, summaries

COLOURS = ("#444444", "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#B8A800")
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")
PART_LOOKS = {"draft": ("#E69F00", "///"), "target": ("#0072B2", ""), "sampling": ("#009E73", "..."), "other": ("#CC79A7", "xx")}
GREY = "#6b6b6b"
STYLE: Any = {
    "font.family": "sans-serif", "font.size": 9.5, "axes.spines.top": False, "axes.spines.right": False,
    "axes.edgecolor": GREY, "axes.labelcolor": "#333333", "text.color": "#222222", "xtick.color": GREY, "ytick.color": GREY,
    "xtick.labelcolor": "#333333", "ytick.labelcolor": "#333333", "axes.grid": True, "grid.color": "#e3e3e3", "grid.linewidth": 0.7,
    "axes.axisbelow": True, "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "svg.fonttype": "none", "svg.hashsalt": "paceline", "figure.facecolor": "white",
}
WIDTH = 8.4
"""Inches."""
SHORTEST = 5
"""Replies behind the mean length of a round, below which it is not drawn: a few long replies are no trend."""


@dataclass(frozen=True, slots=True)
class Look:
    """How a configuration is drawn."""

    colour: str
    marker: str
    line: str


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure with what is to be read in it."""

    name: str
    """Of its file."""
    title: str
    caption: str
    figure: Figure


def all_of(result: Result) -> list[Plot]:
    """Every plot that the result has numbers for, in the order of the page."""
    by_category = summaries(result.rows, result.configs)
    makers: list[Callable[[Result, Mapping[str, Any]], Plot | None]] = [
        speed_up, acceptance, lengths, time_split, delays, memory, throughput,
    ]
    with matplotlib.rc_context(STYLE):
        return [plot for maker in makers if (plot := maker(result, by_category)) is not None]


def rendered(plot: Plot, kind: Literal["svg", "png"] | str) -> bytes:
    """The bytes of an image file."""
    out = io.BytesIO()
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font")  # of a category's name: a box stands for it
        settings: dict[str, Any] = {"metadata": {"Date": None}} if kind == "svg" else {"dpi": 160}
        plot.figure.savefig(out, format=kind, bbox_inches="tight", **settings)
    return out.getvalue()


def speed_up(result: Result, by_category: Mapping[str, Any]) -> Plot | None:
    """Ratio to the baseline by category, with both intervals, on a logarithmic axis."""
    names = [config.name for config in result.configs if config.baseline]
    look = _looks(result)
    points = [
        (row, names.index(name), entry["ratio"])
        for row, modes in enumerate(by_category.values()) for name, entry in modes.items()
        if name in names and entry["ratio"]["median"] is not None
    ]
    if not points:
        return None
    step = 0.8 / len(names)
    figure, axes = _figure(1.0 + len(by_category) * (0.22 + 0.17 * len(names)))
    axes.axvline(1, color=GREY, linewidth=1)
    for index, name in enumerate(names):
        mine = [(row, ratio) for row, which, ratio in points if which == index]
        places = [row + step * (index - (len(names) - 1) / 2) for row, _ in mine]
        for place, (_, ratio) in zip(places, mine, strict=True):
            ends = [ratio["low"] or ratio["median"], ratio["high"] or ratio["median"]]
            axes.plot(ends, [place] * 2, color=look[name].colour, linewidth=1.4, solid_capstyle="butt")
            if ratio["noise_low"]:
                noise = [ratio["noise_low"], ratio["noise_high"]]
                axes.plot(noise, [place] * 2, color=look[name].colour, linewidth=4, alpha=0.45, solid_capstyle="butt")
            axes.plot(ratio["worst"], place, "|", color=look[name].colour, markersize=7)
        axes.plot([ratio["median"] for _, ratio in mine], places, look[name].marker, color=look[name].colour, markersize=5.5, label=name, linestyle="none")
    axes.set_xscale("log")
    _ratio_ticks(axes)
    axes.set_yticks(range(len(by_category)), [_category(name) for name in by_category])
    axes.set_ylim(len(by_category) - 0.45, -0.55)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("tokens/s, times the baseline's")
    _legend(axes, len(names))
    return Plot(
        "speed-up", "Speed-up by category", "Point: median over prompts. Thin line: 95 % interval over prompts and repeats. Thick line: "
        "over repeats of these prompts alone, the noise. Tick: the worst prompt. Right of 1 is faster than the baseline.", figure,
    )


def acceptance(result: Result, by_category: Mapping[str, Any]) -> Plot | None:
    """Share kept at each position of a block, over all prompts."""
    last = _overall(by_category)
    kept = {name: entry["acceptance_by_position"] for name, entry in last.items() if entry["acceptance_by_position"]}
    if not kept:
        return None
    figure, axes = _figure(3.2)
    look = _looks(result)
    for name, shares in kept.items():
        axes.plot(range(1, len(shares) + 1), shares, f"-{look[name].marker}", color=look[name].colour, markersize=4.5, linewidth=1.4, label=name)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    axes.set_xlim(left=0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("position in the block")
    axes.set_ylabel("kept, of those judged")
    _legend(axes, len(kept))
    return Plot(
        "acceptance", "Acceptance by position", "Of the tokens that were drafted at a position and came to be judged, the share the target kept, "
        "over all prompts. Positions behind a refused token are not judged.", figure,
    )


def lengths(result: Result, by_category: Mapping[str, Any]) -> Plot | None:
    """Mean number of drafted tokens in the first, second, ... round of a reply."""
    del by_category
    series = {
        name: _mean_lengths(rows) for name, rows in grouped(result.rows, lambda row: row.config).items() if any(any(r.lengths) for r in rows)
    }
    if not series:
        return None
    figure, axes = _figure(3.2)
    look = _looks(result)
    for name, means in series.items():
        axes.plot(range(1, len(means) + 1), means, color=look[name].colour, linewidth=1.3, label=name, linestyle=look[name].line)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("round of the reply")
    axes.set_ylabel("tokens drafted, mean")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(axes, len(series))
    return Plot(
        "lengths", "Draft length over time", "Tokens drafted in each round, mean over all replies that had that many rounds "
        f"(at least {SHORTEST}, or half of them). A round without drafting counts as 0.", figure,
    )


def time_split(result: Result, by_category: Mapping[str, Any]) -> Plot | None:
    """Shares of decode time by configuration."""
    del result
    last = _overall(by_category)
    shares = {name: entry["time_share"] for name, entry in last.items() if entry["time_share"]}
    if not shares:
        return None
    figure, axes = _figure(0.9 + 0.32 * len(shares))
    names, left = list(shares), [0.0] * len(shares)
    for part in PARTS:
        values, (colour, hatch) = [shares[name][part] for name in names], PART_LOOKS[part]
        axes.barh(range(len(names)), values, left=left, height=0.62, color=colour, hatch=hatch, edgecolor="white", linewidth=0.6,
                  label={"target": "checking and decoding", "draft": "drafting"}.get(part, part))
        left = [a + b for a, b in zip(left, values, strict=True)]
    _named_rows(axes, names)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    axes.set_xlabel("share of decode time")
    _legend(axes, len(PARTS))
    return Plot("time-split", "Where the time goes", "Over all prompts, from the first token on. Reading the prompt is not in it.", figure)


def delays(result: Result, by_category: Mapping[str, Any]) -> Plot | None:
    """Time to the first token by category, and gaps between tokens over all."""
    names = [config.name for config in result.configs if any(config.name in modes for modes in by_category.values())]
    if not names:
        return None
    figure = Figure(figsize=(WIDTH, 1.2 + 0.34 * max(len(by_category), len(names))), layout="constrained")
    first, gaps = figure.subplots(1, 2)
    look = _looks(result)
    for index, name in enumerate(names):
        shift = 0.6 * (index - (len(names) - 1) / 2) / len(names)
        mine = [(row + shift, modes[name]["ttft_ms"]["median"]) for row, modes in enumerate(by_category.values()) if name in modes]
        first.plot([value for _, value in mine], [row for row, _ in mine], look[name].marker, color=look[name].colour, markersize=4, linestyle="none", label=name)
    first.set_yticks(range(len(by_category)), [_category(name) for name in by_category])
    first.set_ylim(len(by_category) - 0.5, -0.5)
    first.set_xlim(left=0)
    first.set_xlabel("time to the first token, median, ms")
    last = _overall(by_category)
    for row, name in enumerate(names):
        values = [last[name]["itl_ms"][p] for p in ("p50", "p95", "p99")] if name in last else []
        if values and None not in values:
            gaps.plot([values[0], values[2]], [row] * 2, color=look[name].colour, linewidth=1.4)
            gaps.plot(values, [row] * 3, "|", color=look[name].colour, markersize=9, markeredgewidth=2)
    _named_rows(gaps, names)
    gaps.set_xlim(left=0)
    gaps.set_xlabel("between two tokens: p50, p95, p99, ms")
    figure.legend(*first.get_legend_handles_labels(), loc="outside upper center", ncols=min(4, len(names)), frameon=False)
    return Plot(
        "delays", "Delays", "Left: how long the prompt takes to be read, by category. Right: gaps between tokens as percentiles of a reply, "
        "median over replies; the tokens of one block come at once (a gap of 0), so blocks trade an even flow for speed.", figure,
    )


def memory(result: Result, by_category: Mapping[str, Any]) -> Plot | None:
    """Peak memory of each configuration's process, and of devices where they were measured."""
    last = _overall(by_category)
    peaks = {name: entry["peak_rss_bytes"] / 1e9 for name, entry in last.items() if entry["peak_rss_bytes"]}
    if not peaks:
        return None
    names, devices = list(peaks), _device_bytes(result)
    figure, axes = _figure(0.9 + 0.32 * len(names))
    axes.barh(range(len(names)), list(peaks.values()), height=0.6, color=COLOURS[1], label="process, peak")
    for row, name in enumerate(names):
        if devices.get(name):
            axes.barh(row, devices[name] / 1e9, left=peaks[name], height=0.6, color=COLOURS[2], hatch="///", edgecolor="white", label="device" if row == 0 else None)
        axes.annotate(f"{peaks[name] + devices.get(name, 0) / 1e9:.2f}", (peaks[name] + devices.get(name, 0) / 1e9, row), xytext=(4, 0),
                      textcoords="offset points", va="center", fontsize=8.5)
    _named_rows(axes, names)
    axes.set_xlabel("GB")
    axes.margins(x=0.1)
    if devices:
        _legend(axes, 2)
    return Plot("memory", "Memory", "Peak of each engine's process. Configurations that share a process share its peak.", figure)


def throughput(result: Result, by_category: Mapping[str, Any]) -> Plot | None:
    """All tokens per second against the number of replies at once."""
    del by_category
    entries = load_summary(result.throughput)
    if not entries:
        return None
    figure, axes = _figure(3.0)
    look = _looks(result)
    for mode in dict.fromkeys(entry["mode"] for entry in entries):
        mine = [entry for entry in entries if entry["mode"] == mode]
        counts, speeds = [entry["at_once"] for entry in mine], [entry["tokens_per_second"] for entry in mine]
        spread = [[entry["tokens_per_second"] - entry["low"] for entry in mine], [entry["high"] - entry["tokens_per_second"] for entry in mine]]
        axes.errorbar(counts, speeds, yerr=spread, fmt=f"-{look[mode].marker}", color=look[mode].colour, capsize=3, markersize=5, linewidth=1.4, label=mode)
    axes.set_ylim(bottom=0)
    axes.set_xticks(sorted({entry["at_once"] for entry in entries}))
    axes.set_xlabel("replies at once, each in a process of its own")
    axes.set_ylabel("tokens/s of all, prompts included")
    _legend(axes, 2)
    return Plot("throughput", "Several replies at once", "Median and range over repeats.", figure)


def _figure(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def _overall(by_category: Mapping[str, Any]) -> Mapping[str, Any]:
    """By configuration, over all prompts; the only category where there is one."""
    overall: Mapping[str, Any] = by_category.get(ALL) or next(iter(by_category.values()), {})
    return overall


def _named_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)


def _ratio_ticks(axes: Axes) -> None:
    """Ticks that people know ratios by: enough of them to read a value, few enough not to touch."""
    low, high = axes.get_xlim()
    low, high = min(low, 0.95), max(high, 1.05)
    marks = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2, 2.5, 3, 4, 5, 7, 10, 20)
    inside = [mark for mark in marks if low <= mark <= high]
    if len(inside) > 11:
        inside = [mark for mark in (0.05, 0.1, 0.2, 0.5, 1, 1.5, 2, 3, 5, 10, 20) if low <= mark <= high]
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(inside))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_minor_locator(FixedLocator([]))


def _legend(axes: Axes, entries: int) -> None:
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=min(4, max(1, entries)), frameon=False)


def _mean_lengths(rows: Sequence[Measurement]) -> list[float]:
    means = []
    enough = min(SHORTEST, -(-len(rows) // 2))
    for column in zip_longest(*(row.lengths for row in rows)):
        known = [length for length in column if length is not None]
        if len(known) < enough:
            break
        means.append(sum(known) / len(known))
    return means


def _device_bytes(result: Result) -> dict[str, int]:
    """Device memory by configuration, from what the loads took."""
    found = {}
    for config in result.configs:
        for engine in result.engines:
            if engine.get("device_bytes") and config.name in engine.get("configs", ()):
                found[config.name] = int(engine["device_bytes"])
    return found


def _category(name: str) -> str:
    return name.replace("_", " ") if name != ALL else "all prompts"


def _looks(result: Result) -> dict[str, Look]:
    """One look for each configuration, the same in every plot."""
    lines = ("-", "--", "-.", ":")
    return {
        config.name: Look(COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)], lines[i % len(lines)])
        for i, config in enumerate(result.configs)
    }
