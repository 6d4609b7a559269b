#!/usr/bin/env python3
"""Write a GGUF in another quantisation, at a place of your choice; `paceline models quantize` without the inventory.

    python scripts/requantize.py SRC.gguf DST.gguf --type Q8_0

For measurements: a Q8_0 copy of a Q4_K_M target costs more a token, as a model twice the size does. Its weights are
those of the source, rounded once more, so its replies are no better than the source's and may differ from those of a
Q8_0 made from the original weights.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.errors import EngineError
from engine.quantize import quantize
from models import ModelsError, read_gguf
from models.file_types import is_quantised, quantisation_of


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, metavar="SRC")
    parser.add_argument("destination", type=Path, metavar="DST")
    parser.add_argument("--type", default="Q8_0", metavar="TYPE", help="Q8_0, Q4_K_M, F16, ... (default Q8_0)")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="default: all cores")
    args = parser.parse_args()
    if args.destination.exists() and args.source.exists() and args.destination.samefile(args.source):
        parser.error("SRC and DST are the same file")
    if not args.destination.absolute().parent.is_dir():
        parser.error(f"there is no directory {args.destination.absolute().parent}")
    try:
        info = read_gguf(args.source)
        if is_quantised(info):
            print(
                f"requantize: warning: {args.source.name} is already quantised ({quantisation_of(info)}); what that lost "
                "stays lost. Use the result to measure speed, not to get better replies.",
                file=sys.stderr,
            )
        quantize(args.source, args.destination, args.type, threads=args.threads)
    except (EngineError, ModelsError, OSError) as error:
        print(f"requantize: {error}", file=sys.stderr)
        return 1
    print(f"{args.destination}: {args.destination.stat().st_size:,} bytes, {args.type.upper()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
