#!/usr/bin/env python3
"""Write a GGUF in another quantisation, with llama.cpp's own quantiser.

    python scripts/requantize.py SRC.gguf DST.gguf --type Q8_0

For measurements: a Q8_0 copy of a Q4_K_M target costs more a token, as a model twice the size does. Its weights are
those of the source, rounded once more, so its replies are no better than the source's and may differ from those of a
Q8_0 made from the original weights.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
from pathlib import Path

import llama_cpp

PREFIXES = ("LLAMA_FTYPE_MOSTLY_", "LLAMA_FTYPE_ALL_")
FULL_PRECISION = {"F32", "F16", "BF16"}


def types() -> dict[str, int]:
    """The quantisations this build of llama.cpp can write, by the names people use (Q8_0, Q4_K_M, F16)."""
    return {
        name.removeprefix(prefix): value
        for name, value in vars(llama_cpp).items()
        for prefix in PREFIXES
        if name.startswith(prefix) and isinstance(value, int)
    }


def source_type(path: Path) -> int | None:
    """`general.file_type` of a file, or None where it does not say. SystemExit for a file llama.cpp refuses."""
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True  # the header is all that is wanted; llama_model_ftype would answer F32 then
    model = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
    if not model:
        raise SystemExit(f"requantize: {path} is not a model that llama.cpp can read")
    text = ctypes.create_string_buffer(32)
    try:
        length = llama_cpp.llama_model_meta_val_str(model, b"general.file_type", text, len(text))
    finally:
        llama_cpp.llama_model_free(model)
    return int(text.value) if length > 0 else None


def requantize(source: Path, destination: Path, file_type: int, threads: int) -> None:
    """Write `destination` whole or not at all. Raises SystemExit when llama.cpp fails."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = file_type
    params.nthread = threads
    params.allow_requantize = True
    part = destination.with_name(destination.name + ".part")
    try:
        if llama_cpp.llama_model_quantize(os.fsencode(source), os.fsencode(part), ctypes.byref(params)) != 0:
            raise SystemExit("requantize: llama.cpp failed; its last lines above say why")
        os.replace(part, destination)
    finally:
        part.unlink(missing_ok=True)


def main() -> int:
    names = types()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, metavar="SRC")
    parser.add_argument("destination", type=Path, metavar="DST")
    parser.add_argument("--type", default="Q8_0", metavar="TYPE", help="Q8_0, Q4_K_M, F16, ... (default Q8_0)")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="default: all cores")
    args = parser.parse_args()
    wanted = names.get(args.type.upper())
    if wanted is None:
        parser.error(f"no type {args.type}; there are {', '.join(sorted(names))}")
    if not args.source.is_file():
        parser.error(f"there is no file {args.source}")
    if args.destination.exists() and args.destination.samefile(args.source):
        parser.error("SRC and DST are the same file")
    if not args.destination.absolute().parent.is_dir():
        parser.error(f"there is no directory {args.destination.absolute().parent}")

    have = source_type(args.source)
    named = next((name for name, value in names.items() if value == have), None)
    if named is not None and named not in FULL_PRECISION:
        print(
            f"requantize: warning: {args.source.name} is already quantised ({named}); what that lost stays lost. "
            "Use the result to measure speed, not to get better replies.",
            file=sys.stderr,
        )
    requantize(args.source, args.destination, wanted, args.threads)
    print(f"{args.destination}: {args.destination.stat().st_size:,} bytes, {args.type.upper()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
