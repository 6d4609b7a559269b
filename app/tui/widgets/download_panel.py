"""A download as it goes on: a line for each file with bytes, rate and time left."""

from __future__ import annotations

from time import monotonic

from textual.content import Content
from textual.widgets import Static

from app.sanitize import sanitize
from app.tui.widgets.download_meter import DownloadMeter, FileRow
from app.tui.widgets.offer_text import HERE
from app.tui.widgets.pace_text import MUTED, TARGET, apart, bar
from app.units import byte_size

REFRESH_SECONDS = 0.2


class DownloadPanel(Static):
    """Reads a meter several times a second; what fills it may run on any thread."""

    DEFAULT_CSS = """
    DownloadPanel { height: auto; width: 1fr; padding: 0 1; display: none; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._meter: DownloadMeter | None = None

    def on_mount(self) -> None:
        self.set_interval(REFRESH_SECONDS, self._refresh)

    def on_resize(self) -> None:
        self._refresh()

    def show_meter(self, meter: DownloadMeter | None) -> None:
        """Show this download from now on; None hides the panel."""
        self._meter = meter
        self.display = meter is not None
        self._refresh()

    def _refresh(self) -> None:
        if self._meter is not None:
            self.update(Content("\n").join(lines(self._meter, monotonic(), self.content_size.width)))


def lines(meter: DownloadMeter, now: float, width: int) -> list[Content]:
    """What the panel shows, two lines a file and one for the last remark."""
    rows = meter.rows(now)
    shown = [line for row in rows for line in _file(row, width)] or [Content("asking for the files…")]
    if meter.notice:
        shown.append(Content.styled(sanitize(meter.notice), MUTED))
    return shown


def _file(row: FileRow, width: int) -> list[Content]:
    phase = "" if row.phase == "downloading" else f" ({row.phase})"
    fraction = row.done / row.total if row.total else 0.0
    total = f" of {byte_size(row.total)}" if row.total else ""
    rate = f"{row.rate / 1e6:.1f} MB/s" if row.rate and row.phase == "downloading" else ""
    left = f"{time_left(row.seconds_left)} left" if rate and row.seconds_left is not None else ""
    done = f"{HERE} here" if row.total and row.done >= row.total else ""
    figures = " · ".join(part for part in (f"{byte_size(row.done)}{total}", done or rate, left) if part)
    return [
        apart(Content.styled(f"{sanitize(row.name)}{phase}", "bold"), Content(figures), width),
        Content.assemble(bar(fraction, max(8, width - 5), TARGET), f" {min(1.0, fraction):4.0%}"),
    ]


def time_left(seconds: float) -> str:
    """`40 s`, `12 min`, `2 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
