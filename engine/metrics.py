"""Counters over the rounds of one reply, and the report made of them. Times are wall-clock seconds inside,
milliseconds in the report; rates are per second."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import BadRequest
from engine.values import Origin, Round


class Metrics:
    """Fill by `first_token` and `add`; read by `report`."""

    def __init__(self, prompt_tokens: int, cached_tokens: int) -> None:
        self.started = time.perf_counter()
        self.prompt_tokens = prompt_tokens
        self.cached_tokens = cached_tokens
        self.completion_tokens = 0
        self.ttft: float | None = None
        self.decode_seconds = 0.0
        self.native_seconds = 0.0
        """Of decode_seconds, spent inside llama.cpp."""
        self._rounds: list[Round] = []
        self._token_gaps: list[float] = []

    def first_token(self) -> None:
        self.ttft = time.perf_counter() - self.started

    def add(self, round_: Round, decoding: bool) -> None:
        """One more round. `decoding` is False for the first, whose time belongs to reading the prompt."""
        self.completion_tokens += len(round_.emitted)
        if decoding:
            self._rounds.append(round_)
            # A block arrives at once: its first token after the whole round, the others after no time.
            self._token_gaps += [round_.total_seconds, *[0.0] * (len(round_.emitted) - 1)][: len(round_.emitted)]

    @property
    def rounds(self) -> int:
        return len(self._rounds)

    @property
    def decode_rate(self) -> float:
        """Tokens per second after the first token, the one that ends the turn among them; 0.0 before there are two."""
        return self._produced / self.decode_seconds if self.decode_seconds > 0 else 0.0

    @property
    def _produced(self) -> int:
        return sum(round_.produced for round_ in self._rounds)

    def report(self, mode: str, state: str) -> dict[str, Any]:
        """The engine's part of `ask --json`: usage, timings, speculation, memory."""
        rounds = self._rounds
        drafted, accepted = _by_position(rounds)
        times = {
            "draft": sum(r.draft_seconds for r in rounds),
            "target": sum(r.target_seconds for r in rounds),
            "sampling": sum(r.sampling_seconds for r in rounds),
        }
        times["other"] = max(0.0, self.decode_seconds - sum(times.values()))
        read = self.prompt_tokens - self.cached_tokens
        return {
            "usage": {
                "prompt_tokens": self.prompt_tokens, "cached_tokens": self.cached_tokens,
                "completion_tokens": self.completion_tokens,
            },
            "timings": {
                "ttft_ms": _ms(self.ttft),
                "prefill_tps": round(read / self.ttft, 2) if self.ttft else None,
                "decode_tps": round(self.decode_rate, 2),
                "decode_seconds": round(self.decode_seconds, 4),
                "outside_llama_share": round(1 - self.native_seconds / self.decode_seconds, 4) if self.decode_seconds else None,
                "itl_ms": dict(zip(("p50", "p95", "p99"), self._gap_percentiles(), strict=True)),
            },
            "speculation": {
                "mode": mode, "state": state, "rounds": len(rounds),
                "drafted": sum(drafted), "accepted": sum(accepted),
                "acceptance_rate": round(sum(accepted) / sum(drafted), 4) if drafted else None,
                "tokens_per_round": round(self._produced / len(rounds), 3) if rounds else None,
                "drafted_by_position": drafted, "accepted_by_position": accepted,
                "by_drafter": {origin: _drafter(rounds, origin) for origin in ("model", "ngram")},
                "parked_rounds": sum(r.parked for r in rounds),
                "lengths": {str(n): count for n, count in sorted(Counter(len(r.candidates) for r in rounds).items())},
                "time_ms": {name: _ms(seconds) for name, seconds in times.items()},
            },
            "memory": {"peak_rss_bytes": peak_rss_bytes()},
        }

    def _gap_percentiles(self) -> list[float | None]:
        if not self._token_gaps:
            return [None] * 3
        return [_ms(float(p)) for p in np.percentile(self._token_gaps, [50, 95, 99])]


def _by_position(rounds: list[Round]) -> tuple[list[int], list[int]]:
    """How many rounds drafted, and how many kept, a candidate at position 1, 2, ..."""
    drafted = [r.judged for r in rounds]
    kept = [min(r.accepted, r.judged) for r in rounds]
    places = range(max(drafted, default=0))
    return [sum(n > i for n in drafted) for i in places], [sum(n > i for n in kept) for i in places]


def _drafter(rounds: list[Round], origin: Origin) -> dict[str, Any]:
    own = [r for r in rounds if r.origin == origin and r.candidates]
    drafted, accepted = map(sum, _by_position(own))
    return {
        "rounds": len(own), "drafted": drafted, "accepted": accepted,
        "acceptance_rate": round(accepted / drafted, 4) if drafted else None,
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 3)


def peak_rss_bytes() -> int | None:
    """The process's highest resident memory; None where the platform does not tell.

    Linux: VmHWM, as ru_maxrss also remembers the process this one was started from.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class Trace:
    """One JSON line per round, for a person with a question about a slow or odd reply."""

    def __init__(self, path: Path | None) -> None:
        """Raises BadRequest if the file cannot be opened for appending."""
        self._path = path
        self.failure: str | None = None
        """Why rounds are missing at its end, in one line."""
        try:
            self._file = None if path is None else path.open("a", encoding="utf-8")
        except OSError as error:
            raise BadRequest(f"the trace cannot be written to {path}: {error.strerror}") from error

    def write(self, index: int, round_: Round, pieces: list[str], state: str) -> None:
        if self._file is None:
            return
        times = {"draft": round_.draft_seconds, "target": round_.target_seconds,
                 "sampling": round_.sampling_seconds, "total": round_.total_seconds}
        try:
            self._file.write(json.dumps({
                "round": index, "context": round_.context, "drafter": round_.origin,
                "candidates": list(round_.candidates), "confidence": [round(c, 4) for c in round_.confidence],
                "match_length": round_.match_length, "accepted": round_.accepted, "emitted": list(round_.emitted),
                "text": pieces, "parked": round_.parked, "ms": {name: _ms(s) for name, s in times.items()},
                "expected_ms": _ms(round_.expected_seconds), "plain_ms": _ms(round_.plain_seconds), "why": round_.reason, "state": state,
            }, ensure_ascii=False) + "\n")
        except OSError as error:  # a full disk ends the trace, not the reply
            self._note(error)
            self.close()

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            try:
                file.close()
            except OSError as error:
                self._note(error)

    def _note(self, error: OSError) -> None:
        self.failure = f"the trace in {self._path} is not whole: {error.strerror}"
