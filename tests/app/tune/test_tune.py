"""`paceline tune` on a tiny real pair, and what a load makes of what was kept."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from app.chat.model_choice import Models
from app.cli import main
from app.fit import fit_selection
from app.interrupt import Interrupt
from app.local_pair import LocalModel, LocalPair
from app.options import LoadChoices
from app.paths import Paths
from app.plan import plan_pair
from app.selection import Choice, Selection
from app.tune import session, store
from app.tune.drafts import other_drafts
from app.tune.search import Outcome
from app.tune.session import tune
from app.tune.store import Tuned, tuned_settings
from app.wiring import TerminalFront, fitted, load_config, local_pair
from engine import LoadConfig, LoadFailed
from engine.trial import Trial, running_trial
from models import Hardware, Inventory, LoadPlan, read_gguf, shape_of


@pytest.fixture
def pair(home: Path, target: Path, draft: Path) -> LocalPair:
    return LocalPair(LocalModel(target), LocalModel(draft))


@pytest.fixture
def paths(home: Path) -> Paths:
    return Paths.find()


def keep(paths: Paths, pair: LocalPair, **how: Any) -> None:
    assert pair.draft
    entry = Tuned(store.this_machine(), store.file_key(pair.target.path), store.file_key(pair.draft.path), {})
    store.save(paths, replace(entry, **how))


def config(pair: LocalPair, paths: Paths, *, tuned: bool = True, **choices: Any) -> LoadConfig:
    chosen = LoadChoices(**choices)
    ready = fitted(pair, chosen, paths, ["auto"], TerminalFront(), tuned=tuned)
    return load_config(ready, chosen, paths, lambda line: None)


def test_what_was_kept_is_used_for_that_pair(paths: Paths, pair: LocalPair, drafts: dict[str, Path]) -> None:
    assert tuned_settings(paths, pair) == {}
    keep(paths, pair, settings={"threads": 3, "flash_attention": False})
    loaded = config(pair, paths)
    assert (loaded.threads, loaded.flash_attention) == (3, False)
    assert tuned_settings(paths, replace(pair, draft=LocalModel(drafts["poor"]))) == {}
    assert tuned_settings(paths, replace(pair, draft=None)) == {}
    assert config(pair, paths, tuned=False).threads is None


def test_what_the_user_says_comes_first(paths: Paths, pair: LocalPair) -> None:
    keep(paths, pair, settings={"threads": 3, "batch_threads": 5, "kv_type": "q8_0", "batch": 256})
    chosen = config(pair, paths, threads=2)
    assert (chosen.threads, chosen.batch_threads, chosen.kv_type) == (2, None, "q8_0")
    without = config(pair, paths, flash_attention=False)
    assert (without.kv_type, without.flash_attention, without.batch) == ("f16", False, 256)


def test_what_was_tuned_is_planned_for_and_given_up_where_it_would_cost_anything_else(
    paths: Paths, pair: LocalPair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pair.draft
    tuned = {"threads": 3, "batch": 2048, "flash_attention": False}
    keep(paths, pair, settings=tuned)
    shapes = [shape_of(read_gguf(model.path)) for model in (pair.target, pair.draft)]
    room = Hardware(0, 1 << 30, 4, 8, 1 << 40, (), frozenset())
    plain, wanted = (plan_pair(shapes[0], shapes[1], room, LoadChoices(), tuned=how) for how in ({}, tuned))
    assert isinstance(plain, LoadPlan)
    assert isinstance(wanted, LoadPlan)
    assert wanted.host_needed_bytes > 1.1 * plain.host_needed_bytes
    monkeypatch.setattr("app.wiring.exact_sizes", lambda *_: None)  # the formula decides

    def loaded_with(free: int) -> LoadConfig:
        monkeypatch.setattr("app.wiring.this_machine", lambda _: replace(room, available_bytes=free))
        return config(pair, paths)

    enough = loaded_with(wanted.host_needed_bytes)
    assert (enough.threads, enough.batch, enough.flash_attention) == (3, 2048, False)
    assert capsys.readouterr().err == ""
    tight = loaded_with(wanted.host_needed_bytes - 1)
    assert (tight.threads, tight.batch, tight.flash_attention) == (3, 512, None)
    assert capsys.readouterr().err == (
        "paceline: to fit into memory: without what `paceline tune` found (batch 2048, flash attention off)\n"
    )


def test_models_fit_and_the_models_screen_plan_as_the_load_does(
    paths: Paths, pair: LocalPair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pair.draft
    keep(paths, pair, settings={"threads": 3, "batch": 2048, "kv_type": "q8_0"})
    room = Hardware(0, 1 << 30, 4, 8, 1 << 40, (), frozenset())
    names = str(pair.target.path), str(pair.draft.path)

    def planned(free: int) -> list[tuple[str, int, dict[str, Any]]]:
        machine = replace(room, available_bytes=free)
        monkeypatch.setattr("app.machine.machine_with", lambda *_: machine)
        monkeypatch.setattr("app.wiring.this_machine", lambda _: machine)
        assert main(["models", "fit", "--target", names[0], "--draft", names[1], "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)["pair"]["plan"]
        fit = Models(paths, LoadChoices()).offer(*names, None).fit
        assert fit.plan
        return [
            (shown["kv_type"], shown["batch"], shown["tuned"]), (fit.plan.kv_type, fit.plan.batch, dict(fit.tuned)),
        ]

    tuned = ("q8_0", 2048, {"threads": 3, "batch": 2048, "kv_type": "q8_0"})
    assert planned(1 << 40) == [tuned, tuned]
    shapes = [shape_of(read_gguf(Path(name))) for name in names]
    wanted = plan_pair(shapes[0], shapes[1], room, LoadChoices(), tuned={"batch": 2048, "kv_type": "q8_0"})
    assert isinstance(wanted, LoadPlan)
    plain = ("f16", 512, {"threads": 3})
    assert planned(wanted.host_needed_bytes - 1) == [plain, plain]
    monkeypatch.setattr("app.machine.machine_with", lambda *_: replace(room, available_bytes=1 << 40))
    assert main(["models", "fit", "--target", names[0], "--draft", names[1], "--ctx", "512", "--kv-type", "f16"]) == 0
    assert "threads 3, batch 2048\n" in capsys.readouterr().out  # what the user says comes first


def test_models_fit_counts_the_draft_that_was_found_to_be_better(
    paths: Paths, pair: LocalPair, drafts: dict[str, Path]
) -> None:
    assert pair.draft
    keep(paths, pair, better_draft=str(drafts["fair"]))
    usual = Selection(Choice(path=pair.target.path), Choice(path=pair.draft.path), draft_implied=True)
    machine = Hardware(1 << 34, 1 << 34, 4, 8, 1 << 40, (), frozenset())
    fit = fit_selection("mine", usual, Inventory(paths.models), machine, LoadChoices(), paths)
    assert fit.draft == drafts["fair"].name


def test_ask_names_what_was_tuned(
    paths: Paths, pair: LocalPair, named: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: SIM115 - pytest's own stdin refuses to be read
    keep(paths, pair, settings={"batch": 256, "threads": 7})
    assert main(["ask", *named, "-n", "4", "--json", "--stats", "hello"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["tuned"] == {"batch": 256}
    assert "batch 256" in next(line for line in err.splitlines() if line.startswith("tuned"))


def test_another_machine_s_settings_are_not_ours(paths: Paths, pair: LocalPair) -> None:
    keep(paths, pair, settings={"threads": 3}, machine={**store.this_machine(), "cpu": "another"})
    assert tuned_settings(paths, pair) == {}
    keep(paths, pair, settings={"threads": 4})
    assert tuned_settings(paths, pair) == {"threads": 4}
    keep(paths, pair, settings={"threads": 5})
    assert tuned_settings(paths, pair) == {"threads": 5}
    assert len(store.load(paths)) == 2
    assert store.reset(paths, pair) == 1
    assert (tuned_settings(paths, pair), len(store.load(paths))) == ({}, 1)
    assert store.reset(paths, None) == 1


def test_doctor_tells_what_is_in_use(paths: Paths, pair: LocalPair, capsys: pytest.CaptureFixture[str]) -> None:
    keep(paths, pair, settings={"threads": 3, "flash_attention": False}, better_draft="/m/e.gguf")
    main(["doctor", "--offline"])
    assert "target.gguf: threads 3, flash attention off, draft e.gguf" in capsys.readouterr().out
    assert store.in_use(paths, "another build") == ()


@pytest.mark.parametrize("settings", [{"threads": "four"}, {"flash_attention": 1}, {"kv_type": None}, {"context": 9}, ["threads"]])
def test_settings_that_no_load_could_take_are_left_out(paths: Paths, pair: LocalPair, settings: Any) -> None:
    keep(paths, pair, settings=settings)
    assert tuned_settings(paths, pair) == {}
    keep(paths, pair, settings={"threads": 2})
    assert tuned_settings(paths, pair) == {"threads": 2}


def test_an_entry_whose_outcomes_were_edited_is_left_out(paths: Paths, pair: LocalPair, capsys: pytest.CaptureFixture[str]) -> None:
    keep(paths, pair, settings={"threads": 2}, gains=({"name": "threads"},))
    assert main(["tune", "--show"]) == 0
    assert capsys.readouterr().out == "nothing was tuned yet; `paceline tune` does it\n"


@pytest.mark.parametrize("text", ["", "{", '{"format": 99, "tuned": []}', '{"format": 1, "tuned": [{"nonsense": 1}]}', "[]"])
def test_a_file_that_cannot_be_read_counts_as_empty(paths: Paths, pair: LocalPair, text: str) -> None:
    store.location(paths).parent.mkdir(parents=True, exist_ok=True)
    store.location(paths).write_text(text)
    assert tuned_settings(paths, pair) == {}
    keep(paths, pair, settings={"threads": 2})
    assert tuned_settings(paths, pair) == {"threads": 2}


def test_a_better_draft_takes_the_usual_one_s_place(
    paths: Paths, pair: LocalPair, drafts: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(paths, pair, settings={"threads": 1}, better_draft=str(drafts["fair"]))
    assert store.tuned_draft(paths, pair) == drafts["fair"]
    assert tuned_settings(paths, replace(pair, draft=LocalModel(drafts["fair"]))) == {"threads": 1}
    named = local_pair(LoadChoices(str(pair.target.path), str(drafts["good"])), paths, ["auto"])
    assert named.draft
    assert named.draft.path == drafts["good"]
    keep(paths, pair, better_draft="/gone.gguf")
    assert store.tuned_draft(paths, pair) is None


def test_other_drafts_share_the_vocabulary_and_are_smaller(target: Path, mismatched: Path, tmp_path: Path) -> None:
    from models import Inventory

    inventory, sizes = Inventory(tmp_path), {}
    for name, source in (("small", target), ("other", mismatched), ("mine", target)):
        path = tmp_path / f"{name}.gguf"
        shutil.copyfile(source, path)
        inventory.record(path, "0" * 64, origin="test", repo=None, revision=None)
        sizes[name] = path
    big = tmp_path / "big" / "target.gguf"
    big.parent.mkdir()
    shutil.copyfile(target, big)
    with big.open("ab") as file:
        file.truncate(2 * big.stat().st_size)
    assert other_drafts(big, sizes["mine"], tmp_path) == [sizes["small"].resolve()]
    assert other_drafts(target, None, tmp_path) == []


def test_a_trial_times_two_caches_on_one_model(target: Path) -> None:
    base = LoadConfig(target, context=512, threads=1)
    with running_trial(base, lambda: False) as trial:
        one, other = trial.open(base, 128, 128), trial.open(replace(base, flash_attention=False), 128, 128)
        for number in (one, other, one):
            sample = trial.sample(number, ("row", "block", "prompt"))
            assert set(sample) == {"row", "block", "prompt"}
            assert all(seconds > 0 for seconds in sample.values())
        with pytest.raises(LoadFailed):
            trial.open(replace(base, flash_attention=False, kv_type="q8_0"), 128, 128)
        with pytest.raises(LoadFailed, match="too short a context"):
            trial.open(base, 128, 4000)
        assert trial.sample(trial.open(base, 4000, 128), ("row",))["row"] > 0  # as deep as the model can
        trial.close(other)
        assert trial.sample(one, ("row",)).keys() == {"row"}


def test_what_would_not_fit_is_never_allocated(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine import trial
    from engine.buffer_sizes import BufferSizes

    with pytest.raises(LoadFailed, match=r"it needs 1000000\.0 GB more"):
        trial._check_memory(BufferSizes(10**15, 0, 0))
    trial._check_memory(BufferSizes(10**6, 10**6, 0))


def test_a_run_without_an_answer_keeps_an_earlier_one_s(
    paths: Paths, pair: LocalPair, named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    keep(paths, pair, settings={"flash_attention": False, "batch": 256}, better_draft="/m/e.gguf")
    with Interrupt() as interrupt:
        entry = tune(pair, LoadChoices(ctx=512), paths, 0.001, interrupt).entry
    assert {gain["status"] for gain in entry.gains} == {"no time"}
    assert (entry.settings, entry.better_draft) == ({"flash_attention": False, "batch": 256}, "/m/e.gguf")
    assert store.load(paths) == [entry]


def test_an_earlier_setting_stands_where_there_was_no_time_to_decide(paths: Paths, pair: LocalPair) -> None:
    keep(paths, pair, settings={"batch": 256, "kv_type": "q8_0"})
    gains = [
        Outcome("batch", {"batch": 128}, "no gain"), Outcome("batch", {"batch": 256}, "no time"),
        Outcome("kv_type", {"kv_type": "q8_0"}, "no gain"),
    ]
    with Interrupt() as interrupt:
        run = session._Run(pair, LoadChoices(ctx=512), paths, 1.0, interrupt)
        assert run._entry(run._config, gains).settings == {"batch": 256}


def test_a_result_that_could_not_be_kept_is_not_looked_for(
    pair: LocalPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "file" / "home"))
    monkeypatch.setattr("app.tune.session.running_trial", lambda *_: pytest.fail("it was measured"))
    assert pair.draft
    assert main(["tune", "--target", str(pair.target.path), "--draft", str(pair.draft.path)]) == 1
    assert "where what is found would be kept" in capsys.readouterr().err


@pytest.fixture
def named(target: Path, draft: Path) -> list[str]:
    return ["--target", str(target), "--draft", str(draft), "--ctx", "512", "--threads", "1"]


def test_a_whole_run_shows_what_was_tried_and_keeps_it(
    home: Path, paths: Paths, named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "--show"]) == 0
    assert capsys.readouterr().out == "nothing was tuned yet; `paceline tune` does it\n"
    assert main(["tune", *named, "--budget", "0.15"]) == 0
    out = capsys.readouterr().out
    assert "flash attention off" in out
    assert "threads" not in out  # fixed by the user
    (entry,) = store.load(paths)
    assert {gain["name"] for gain in entry.gains} <= {"flash_attention", "kv_type", "batch"}
    assert ("in use from now on" in out) == bool(entry.settings)
    assert main(["tune", "--show"]) == 0
    assert "flash attention off" in capsys.readouterr().out
    assert main(["tune", "--show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps({"tuned": [asdict(entry)]}))
    assert main(["tune", *named, "--budget", "0.05", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["complete"]
    assert told["target"].startswith("target.gguf:")
    assert main(["tune", *named, "--reset"]) == 0
    assert capsys.readouterr().out == "forgotten\n"
    assert json.loads(store.location(paths).read_text())["tuned"] == []
    assert store.location(paths).stat().st_mode & 0o077 == 0


def test_ctrl_c_ends_it_cleanly(
    paths: Paths, named: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def interrupted(config: LoadConfig, cancelled: Callable[[], bool]) -> Iterator[Trial]:
        with running_trial(config, cancelled) as trial:
            os.kill(os.getpid(), signal.SIGINT)
            yield trial

    monkeypatch.setattr(session, "running_trial", interrupted)
    assert main(["tune", *named, "--budget", "5"]) == 130
    out, err = capsys.readouterr()
    assert err == "paceline: stopped before the end; what was decided until then is kept\n"
    assert "nothing beats the present settings" in out
    assert store.load(paths) == []
