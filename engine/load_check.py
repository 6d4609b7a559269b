"""The end of a load: a block through the target, so that "loaded" means "answers".

Weights that fill memory to the last megabyte load well, and a GPU allocates the work space of its matrix products at
the first block of a size. A block of the largest size is therefore decoded at every load, over an empty cache with all
its logits; on a GPU that takes milliseconds. Two cores take 0.85 s for the 64 rows of a 1.5B target and would take 15 s
for those of a 32B one, so where a full block is measured to take longer than BLOCK_SECONDS, as many rows as that allows
stand for it. The first load with given settings measures blocks of all sizes anyway (engine/calibrate.py), and the draft
model has taken three steps when it was tried whether it can take them back (engine/token_cache.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from engine.cost import CostModel
from engine.errors import DecodeAborted, DecodeFailed, LoadCancelled, LoadFailed
from engine.llama.context import Context

BLOCK_SECONDS = 1.0


def check_block(target: Context, costs: CostModel, max_block: int) -> int:
    """Decode a block and forget it; the rows it had. Raises as Context.decode."""
    quick = [rows for rows in range(1, max_block + 1) if costs.verify(rows, 0) <= BLOCK_SECONDS]
    rows = max(quick, default=1)
    try:
        target.decode([1] * rows, 0, rows)
    finally:
        target.clear()
    return rows


@contextmanager
def load_failures(name: str) -> Iterator[None]:
    """What a decode raises in here is raised as what it means for a load: LoadFailed or LoadCancelled."""
    try:
        yield
    except DecodeAborted:
        raise LoadCancelled(f"loading {name} was cancelled") from None
    except DecodeFailed as error:
        advice = "free some memory, or choose a smaller --ctx, fewer --gpu-layers or a smaller model"
        raise LoadFailed(f"{name} can be loaded but does not answer: {error}; {advice}") from error
