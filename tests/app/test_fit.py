"""`models fit` and `models recommend` on simulated machines, and as they print."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.engine_build import EngineBuild, Gpu
from app.fit import FAST, Fit, fit_pair, fit_selection, is_whole, needs_patience, recommend, tokens_per_second
from app.options import LoadChoices
from app.selection import Choice, Selection
from models import Catalogue, Device, Hardware, Inventory, Pair, load_catalogue

GIB = 1 << 30
X86 = frozenset({"Q4_0", "Q4_K", "IQ4_NL", "MXFP4"})
CATALOGUE = load_catalogue()


def cpu(gib: float, cores: int = 8, disk: int = 500) -> Hardware:
    return Hardware(int(gib * GIB), int(gib * GIB * 0.75), cores, cores, disk * GIB, (), X86)


def with_gpu(gib: float, *, unified: bool = False) -> Hardware:
    device = Device("GPU0", int(gib * GIB), int(gib * GIB * (0.7 if unified else 0.96)), unified)
    return replace(cpu(gib if unified else 32), devices=(device,))


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    return Inventory(tmp_path / "models")


def fits_on(machine: Hardware, inventory: Inventory, catalogue: Catalogue = CATALOGUE) -> dict[str, Fit]:
    return {pair.name: fit_pair(pair, inventory, machine) for pair in catalogue.pairs}


@pytest.mark.parametrize(
    ("machine", "name", "verdict"),
    [
        (cpu(8), "starter", "cpu"), (cpu(8), "qwen2.5-coder-32b", "no"), (with_gpu(8), "starter", "gpu"),
        (with_gpu(12), "qwen3-14b", "gpu"), (with_gpu(8), "qwen3-14b", "split"), (with_gpu(16, unified=True), "qwen3-8b", "gpu"),
        (cpu(64), "mixtral-8x7b-tinyllama", "unusable"), (cpu(64), "gemma-3-12b-gemma-2", "unusable"), (cpu(96), "llama-3.3-70b", "unknown"),
        (cpu(16), "llama-3.3-70b", "no"),
    ],
)
def test_the_verdict(machine: Hardware, name: str, verdict: str, inventory: Inventory) -> None:
    fit = fit_pair(CATALOGUE.pair(name), inventory, machine)
    assert (fit.verdict, fit.fits) == (verdict, verdict in ("gpu", "split", "cpu"))
    assert fit.reason or fit.fits


def test_what_the_user_wishes_is_part_of_the_question(inventory: Inventory) -> None:
    pair, machine = CATALOGUE.pair("llama-2-13b"), cpu(24)
    assert fit_pair(pair, inventory, machine).fits
    long = fit_pair(CATALOGUE.pair("llama-3.1-8b"), inventory, machine, LoadChoices(ctx=131_072, kv_type="f16"))
    assert (long.verdict, "131,072 tokens" in long.reason) == ("no", True)
    smaller = fit_pair(CATALOGUE.pair("llama-3.1-8b"), inventory, cpu(40), LoadChoices(ctx=131_072))
    assert smaller.plan is not None
    assert (smaller.fits, smaller.plan.context) == (True, 131_072)


def test_files_that_are_here_are_read_and_the_others_are_estimated(target: Path, draft: Path, inventory: Inventory) -> None:
    here = Selection(Choice(path=target), Choice(path=draft))
    fit = fit_selection("mine", here, inventory, cpu(8), LoadChoices())
    assert fit.plan is not None
    assert (fit.verdict, fit.download_bytes, fit.plan.estimated) == ("cpu", 0, False)
    assert fit.pair_bytes == target.stat().st_size + draft.stat().st_size
    starter = fit_pair(CATALOGUE.pair("starter"), inventory, cpu(8))
    assert starter.plan is not None
    assert (starter.download_bytes, starter.plan.estimated) == (1_608_720_832, True)


def test_a_draft_that_was_named_is_part_of_what_must_fit(target: Path, draft: Path, inventory: Inventory) -> None:
    machine = Hardware(0, 1 << 20, 2, 2, GIB, (), X86)
    named = Selection(Choice(path=target), Choice(path=draft))
    for selection, kept in ((named, True), (replace(named, draft_implied=True), False)):
        fit = fit_selection("mine", selection, inventory, machine, LoadChoices())
        assert fit.plan is not None
        assert (fit.verdict, fit.plan.use_draft) == ("no", kept)


# -- recommend ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "machine", [cpu(8, 2), cpu(8, 8), cpu(16, 4), cpu(64, 32), with_gpu(8), with_gpu(12), with_gpu(24), with_gpu(8, unified=True), with_gpu(32, unified=True)]
)
def test_the_recommended_pair_follows_the_rule(machine: Hardware, inventory: Inventory) -> None:
    fits = fits_on(machine, inventory)
    best = recommend(fits.values(), machine)
    assert best is not None
    assert best.fits
    assert is_whole(best, machine)
    assert tokens_per_second(best, machine) >= FAST
    larger = [fit for fit in fits.values() if fit.target_bytes > best.target_bytes and fit.fits and not needs_patience(fit)]
    assert all(not is_whole(fit, machine) or tokens_per_second(fit, machine) < FAST for fit in larger)


def test_more_machine_never_means_a_smaller_model(inventory: Inventory) -> None:
    for machines in ([cpu(8, 2), cpu(16, 4), cpu(32, 8)], [with_gpu(gib) for gib in (6, 8, 12, 16, 24)]):
        best = [recommend(fits_on(machine, inventory).values(), machine) for machine in machines]
        sizes = [fit.target_bytes for fit in best if fit]
        assert len(sizes) == len(machines)
        assert sizes == sorted(sizes)


def test_where_nothing_is_quick_the_smallest_that_fits_is_taken(inventory: Inventory) -> None:
    machine = cpu(2.2, 1)
    fits = fits_on(machine, inventory)
    best = recommend(fits.values(), machine)
    possible = [fit for fit in fits.values() if fit.fits and not needs_patience(fit)]
    assert best is not None
    assert possible
    assert best.pair_bytes == min(fit.pair_bytes for fit in possible)


def test_nothing_is_recommended_that_cannot_be_had(inventory: Inventory) -> None:
    assert recommend(fits_on(cpu(0.1), inventory).values(), cpu(0.1)) is None
    full = cpu(16, disk=0)
    assert recommend(fits_on(full, inventory).values(), full) is None
    thinking = CATALOGUE.pair("deepseek-r1-7b")
    assert needs_patience(fit_pair(thinking, inventory, cpu(64)))
    gated = Pair(name="g", title="g", target=thinking.target.model_copy(update={"gated": True, "thinking": "no"}))
    assert needs_patience(fit_pair(gated, inventory, cpu(64)))


# -- as printed -----------------------------------------------------------------------------------------------


@pytest.fixture
def machine(home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets what this machine pretends to be."""

    def pretend(hardware: Hardware, build: EngineBuild | None = None) -> None:
        monkeypatch.setattr("app.engine_build.ask_engine_build", lambda: build or EngineBuild("0.3.36"))
        monkeypatch.setattr("app.machine.machine_with", lambda *_: hardware)

    pretend(cpu(8))
    return pretend


def test_the_table_has_every_usable_pair(machine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "fit"]) == 0
    out, err = capsys.readouterr()
    names = {pair.name for pair in CATALOGUE.pairs}
    shown = {line.split()[0] for line in out.splitlines() if line.strip()} & names
    unusable = {pair.name for pair in CATALOGUE.pairs if pair.unusable or any(file.unusable for file in pair.files)}
    assert shown == names - unusable
    assert "6.4 of 8.6 GB memory free" in err
    assert all(name in err for name in unusable)


def test_the_table_says_briefly_what_was_given_up(machine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    machine(with_gpu(8))
    assert main(["models", "fit"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert "GPU+CPU" in rows["qwen3-32b"]
    assert all(text in rows["qwen3-32b"] for text in ("KV q8_0, ", " layers on GPU")), rows["qwen3-32b"]
    assert "no draft" in rows["mixtral-8x7b"]
    assert len(rows["starter"].split()) == 5, "nothing given up"


def test_json_says_the_same(machine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    machine(with_gpu(8))
    assert main(["models", "fit", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["machine"]["devices"][0]["name"] == "GPU0"
    by_name = {pair["name"]: pair for pair in answer["pairs"]}
    assert set(by_name) == {pair.name for pair in CATALOGUE.pairs}
    assert by_name["starter"]["fits"] == "gpu"
    assert by_name["starter"]["plan"]["given_up"] == []
    assert by_name["mixtral-8x7b"]["fits"] == "split"
    assert by_name["mixtral-8x7b-tinyllama"]["plan"] is None


def test_one_pair_in_full_and_the_exit_code_says_whether_it_fits(machine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "fit", "starter", "--ctx", "8192", "--kv-type", "q8_0"]) == 0
    out = capsys.readouterr().out
    assert "yes, on the CPU" in out
    assert "8,192 tokens of context, KV cache in q8_0" in out
    assert "1.6 GB to download" in out
    assert main(["models", "fit", "qwen2.5-coder-32b"]) == 1
    assert "no: it needs" in capsys.readouterr().out


def test_files_of_ones_own(machine: Any, target: Path, draft: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "fit", "--target", str(target), "--draft", str(draft), "--json"]) == 0
    pair = json.loads(capsys.readouterr().out)["pair"]
    assert (pair["target"], pair["draft"], pair["here"]) == (target.name, draft.name, True)
    assert pair["plan"]["context"] == 2048, "what the tiny target learned"
    assert main(["models", "fit", "starter", "--target", str(target)]) == 2
    assert main(["models", "fit", ""]) == 1  # a script's empty variable is no wish to see them all
    assert main(["models", "fit", "nonsense"]) == 1
    assert "no model named 'nonsense'" in capsys.readouterr().err


def test_recommend_names_a_pair_and_its_command(machine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "recommend", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["get"] == f"paceline models pull {answer['pair']['name']}"
    assert main(["models", "recommend"]) == 0
    out = capsys.readouterr().out
    assert answer["get"] in out
    assert answer["why"] in " ".join(out.split())
    machine(cpu(0.1))
    assert main(["models", "recommend"]) == 1
    assert "no pair of the catalogue fits" in capsys.readouterr().err


def test_a_build_that_cannot_start_is_said_and_the_cpu_counted(
    machine: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine(cpu(8), EngineBuild(fault="it was built for another CPU (illegal instruction)"))
    assert main(["models", "fit", "starter"]) == 0
    out, err = capsys.readouterr()
    assert "built for another CPU" in err
    assert "on the CPU" in out


def test_gpus_of_the_build_reach_the_plan(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    gpu = Gpu("CUDA0", "NVIDIA GeForce RTX 3090", 24 * GIB, 24 * GIB)
    monkeypatch.setattr("app.engine_build.ask_engine_build", lambda: EngineBuild("0.3.36", "CUDA", True, (gpu,)))
    assert main(["models", "fit", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [device["free_bytes"] for device in answer["machine"]["devices"]] == [24 * GIB]
