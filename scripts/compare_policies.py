"""Every length rule on every simulated machine, over recorded replies: one table, and JSON with all of it.

    python scripts/compare_policies.py tests/data/traces/starter.npz --json policies.json

A figure is the mean over replies of throughput divided by plain decoding's. Rules that learn see times that scatter by 4 %
with a stall in 300 decodes, carry over from one reply to the next, and are scored by the true times. `best fixed` and
`all-knowing` are oracles: the best of the lengths 0 to 16 for each reply, and one who knows every acceptance beforehand.
Rules stand once with the draft model alone and once with a lookup before it (ours its own; others copy 15 tokens after a
match of 8).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from engine.acceptance import AcceptanceModel
from engine.adaptive_length import AdaptiveLength
from engine.agreement import PLACES
from engine.cost import CostModel
from engine.length import FixedLength, LengthPolicy
from scripts.replay.machine import Clock, Machine, load_machines
from scripts.replay.policies import (
    AcceptedAverage,
    ConfidenceFloor,
    DynamicSpeculation,
    LookupFirst,
    PositionAverage,
    Profit,
    all_knowing,
)
from scripts.replay.simulate import (
    NO_LOOKUP,
    DraftView,
    LookupView,
    first_acceptance,
    fixed_ratio,
    greedy_draft,
    lookup,
    noise_draft,
    plain_seconds,
    replay,
    sampled_draft,
)
from scripts.replay.trace import ReplyTrace, load_traces

LONGEST = 16
LONG_REPLY = 200
EASE_SECONDS = 0.00015
Prepared = tuple[ReplyTrace, DraftView, DraftView, LookupView]
Results = dict[str, list[float]]


def prepare(traces: list[ReplyTrace]) -> list[Prepared]:
    return [(trace, sampled_draft(trace), greedy_draft(trace), lookup(trace)) for trace in traces]


def ours(costs: CostModel, acceptance: AcceptanceModel, trace: ReplyTrace, **how: bool) -> AdaptiveLength:
    """Our rule, as the engine makes it for a reply."""
    return AdaptiveLength(costs, acceptance, trims=trace.temperature == 0, **how)


def fixed(length: int) -> LengthPolicy:
    return FixedLength("model", length, f"always {length}")


def run(machine: Machine, replies: list[Prepared], seed: int = 0) -> Results:
    """Ratio to plain decoding of every rule for every reply, by the rule's name."""
    found: Results = {}

    def each(name: str, score: Callable[[int, Prepared, Clock], float]) -> None:
        found[name] = [
            score(i, reply, Clock(0.04, 1 / 300, rng=np.random.default_rng([seed, i]))) for i, reply in enumerate(replies)
        ]

    def adaptive(name: str, copies: bool, make_draft: Callable[[int, Prepared], DraftView], fresh: bool = False) -> None:
        first = next(reply for reply in replies if len(reply[0]) >= PLACES)

        def new_pair() -> tuple[CostModel, AcceptanceModel]:
            return machine.calibrated(0.03), first_acceptance(first[0], make_draft(0, first))

        known = new_pair()

        def score(i: int, reply: Prepared, clock: Clock) -> float:
            costs, acceptance = new_pair() if fresh else known
            policy = ours(costs, acceptance, reply[0], use_ngram=copies)
            view = reply[3] if copies else NO_LOOKUP
            return replay(reply[0], policy, machine, make_draft(i, reply), view, clock, ease_seconds=EASE_SECONDS).ratio

        each(name, score)

    for suffix, copies in ("", False), (" + lookup", True):
        def other(name: str, rule: LengthPolicy, draft: int, copies: bool = copies, suffix: str = suffix) -> None:
            policy = LookupFirst(rule) if copies else rule
            each(name + suffix, lambda i, reply, clock: replay(
                reply[0], policy, machine, reply[draft], reply[3] if copies else NO_LOOKUP, clock  # type: ignore[arg-type]
            ).ratio)

        adaptive("ours" + suffix, copies, lambda i, reply: reply[1])
        for length in range(1, LONGEST + 1):
            each(f"fixed {length}{suffix}", lambda i, reply, clock, copies=copies, length=length: fixed_ratio(  # type: ignore[misc]
                reply[0], machine, reply[1], length, reply[3] if copies else NO_LOOKUP
            ))
        other("llama.cpp n_max 3, p_min 0", fixed(3), 2)
        other("llama.cpp n_max 16, p_min 0.75", ConfidenceFloor(), 2)
        other("Hugging Face dynamic", DynamicSpeculation(), 1)
        other("position average (Ollama MLX)", PositionAverage(), 1)
        other("profit (BeeLlama)", Profit(), 1)
        other("accepted average (ExLlamaV3)", AcceptedAverage(), 1)
        lengths = np.array([found[f"fixed {n}{suffix}"] for n in range(1, LONGEST + 1)])
        found["best fixed" + suffix] = np.maximum(1.0, lengths.max(axis=0)).tolist()
        each("all-knowing" + suffix, lambda i, reply, clock, copies=copies: plain_seconds(  # type: ignore[misc]
            reply[0], machine
        ) / all_knowing(reply[0], machine, reply[1], reply[3] if copies else None))
    for sure in True, False:
        adaptive(f"ours, random draft{', sure of itself' if sure else ''}", False, lambda i, reply, sure=sure: noise_draft(  # type: ignore[misc]
            reply[0], np.random.default_rng([seed, i]), sure
        ), fresh=True)
    return found


def table(results: dict[str, Results], long: list[bool]) -> str:
    """Rules down, machines across; for ours also the lowest of the replies of over 200 tokens."""
    names = list(next(iter(results.values())))
    lines = [" " * 40 + " ".join(f"{machine[:15]:>15}" for machine in results)]
    for name in names:
        means = [f"{np.mean(found[name]):15.3f}" for found in results.values()]
        lines.append(f"{name:40}" + " ".join(means))
        if name.startswith("ours"):
            lowest = [min(x for x, is_long in zip(found[name], long, strict=True) if is_long) for found in results.values()]
            lines.append(f"{'  lowest over 200 tokens':40}" + " ".join(f"{x:15.3f}" for x in lowest))
    for suffix in "", " + lookup":
        share = [np.mean(f["ours" + suffix]) / np.mean(f["best fixed" + suffix]) for f in results.values()]
        lines.append(f"{'ours / best fixed per reply' + suffix:40}" + " ".join(f"{x:15.3f}" for x in share))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--machine", action="append", help="only this one of scripts/replay/profiles.toml")
    parser.add_argument("--half", type=int, choices=(0, 1), help="only every other prompt: to tune on one half and judge on the other")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    machines = load_machines()
    traces = [trace for path in args.traces for trace in load_traces(path) if len(trace) > 2]
    if args.half is not None:
        traces = [trace for trace in traces if trace.prompt_id // 2 % 2 == args.half]
    np.random.default_rng(0).shuffle(traces)  # type: ignore[arg-type]
    replies = prepare(traces)
    chosen = {name: machines[name] for name in args.machine or machines}
    with ProcessPoolExecutor(2) as pool:
        results = dict(zip(chosen, pool.map(run, chosen.values(), [replies] * len(chosen)), strict=True))
    print(f"{len(traces)} replies, {sum(map(len, traces))} tokens")
    print(table(results, [len(trace) > LONG_REPLY for trace in traces]))
    if args.json:
        about = [{"suite": t.suite, "prompt_id": t.prompt_id, "temperature": t.temperature, "tokens": len(t)} for t in traces]
        sources = {name: {"title": m.title, "kind": m.kind, "source": m.source} for name, m in chosen.items()}
        rounded = {name: {rule: [round(x, 4) for x in xs] for rule, xs in found.items()} for name, found in results.items()}
        args.json.write_text(json.dumps({"machines": sources, "replies": about, "ratios": rounded}), encoding="utf-8")


if __name__ == "__main__":
    main()
