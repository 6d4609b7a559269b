"""Predicted against measured memory of a pair: `python scripts/check_memory.py TARGET.gguf [DRAFT.gguf]`.

Loads the pair in a process of its own for each context length and KV type, decodes a short reply with both models, and
compares the process's peak resident size (and what GPUs report in use, where there are any) with the plan. Exits with
1 if a prediction is off by more than --tolerance. On a GPU nothing else should be using it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine import ChatMessage, EngineProcess, Finished, GenerationRequest, LoadConfig, SamplingParams
from models import DoesNotFit, Wishes, plan_load, probe, read_gguf, shape_of


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path, nargs="?")
    parser.add_argument("--contexts", type=int, nargs="+", default=[2048, 8192, 32768])
    parser.add_argument("--kv-types", nargs="+", default=["f16", "q8_0"], choices=["f16", "q8_0", "q4_0"])
    parser.add_argument("--tolerance", type=float, default=0.10)
    args = parser.parse_args()

    from engine.llama.binding import devices

    gpus = devices()
    machine = probe(args.target.parent, gpus)  # type: ignore[arg-type]  # same fields; the two packages share no type
    target, draft = (shape_of(read_gguf(path)) if path else None for path in (args.target, args.draft))
    assert target is not None
    worst = 0.0
    print(f"{'context':>8} {'KV':>5} {'predicted':>10} {'measured':>10} {'off by':>7}   device predicted / measured (MB)")
    for context in args.contexts:
        for kv_type in args.kv_types:
            plan = plan_load(target, draft, machine, Wishes(context=context, kv_type=kv_type))
            if isinstance(plan, DoesNotFit):
                print(f"{context:>8} {kv_type:>5}   does not fit: {plan.reason}")
                continue
            memory = measure(LoadConfig(args.target, args.draft, context=context, kv_type=kv_type))
            off = plan.host_peak_bytes / memory["peak_rss_bytes"] - 1
            worst = max(worst, abs(off))
            used = sum(memory.get("device_used_bytes", {}).values())
            if used:
                worst = max(worst, abs(plan.device_bytes / used - 1))
            print(
                f"{context:>8} {kv_type:>5} {plan.host_peak_bytes / 1e6:>10.0f} {memory['peak_rss_bytes'] / 1e6:>10.0f} "
                f"{off:>+7.1%}   {plan.device_bytes / 1e6:.0f} / {used / 1e6:.0f}", flush=True,
            )
    return int(worst > args.tolerance)


def measure(config: LoadConfig) -> dict[str, Any]:
    """The `memory` part of a short reply's report, from a fresh process."""
    request = GenerationRequest(
        messages=(ChatMessage("user", "Count from one to twenty."),), max_tokens=40, sampling=SamplingParams(temperature=0),
        mode="fixed:5" if config.draft else "plain",
    )
    with EngineProcess(config) as engine:
        *_, last = engine.generate(request)
    assert isinstance(last, Finished)
    memory: dict[str, Any] = last.report["memory"]
    return memory


if __name__ == "__main__":
    sys.exit(main())
