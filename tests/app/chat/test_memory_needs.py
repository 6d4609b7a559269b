"""The parts of the memory bar are the plan's own figures: nothing is counted twice or left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.chat.memory_needs import needs_of
from app.fit import fit_pair
from models import Device, DoesNotFit, Hardware, Inventory, load_catalogue

GB = 10**9
CATALOGUE = load_catalogue(Path("none"))
FITTED = frozenset({"Q4_0", "Q4_K"})
LAPTOP = Hardware(16 * GB, 11 * GB, 8, 16, 80 * GB, repacked_types=FITTED)
CUDA = Hardware(32 * GB, 26 * GB, 8, 16, 500 * GB, (Device("CUDA0", 12 * GB, 11 * GB),), FITTED)
APPLE = Hardware(16 * GB, 11 * GB, 8, 8, 500 * GB, (Device("MTL0", 12 * GB, 11 * GB, True),), FITTED)


@pytest.mark.parametrize("machine", [LAPTOP, CUDA, APPLE], ids=["laptop", "cuda", "apple"])
@pytest.mark.parametrize("pair", CATALOGUE.pairs, ids=lambda pair: pair.name)
def test_the_parts_add_up_to_the_plan(pair: object, machine: Hardware, tmp_path: Path) -> None:
    fit = fit_pair(pair, Inventory(tmp_path), machine)  # type: ignore[arg-type]
    if fit.answer is None:
        return
    needs = needs_of(fit.answer, machine)
    assert fit.plan is not None
    assert sum(one.total for one in needs) == fit.plan.host_needed_bytes + fit.plan.device_bytes
    assert all(part >= 0 for one in needs for part in (one.target, one.draft, one.context, one.work))
    if isinstance(fit.answer, DoesNotFit):
        assert any(one.total > one.free for one in needs)
    else:
        assert all(one.total <= one.free for one in needs)
    assert len(needs) == (2 if machine is CUDA and fit.plan.device_bytes else 1)
