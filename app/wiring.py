"""From what the user said to a running engine. The only module that imports both `engine` and `models`.

What is missing on disk is fetched, after a question where a person is there to answer it. A draft nobody asked for
is a convenience: when it cannot come, or has no room in memory, the target runs without. A pair that does not fit
into memory is refused before anything of it is loaded.

Who hears the remarks and is asked is a `Front`: the terminal for commands, the chat's own (app/chat/loading.py) for the
terminal app, where nothing may be printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from app.downloads import fetch, total_size
from app.errors import AppError, Interrupted
from app.exact_sizes import exact_sizes
from app.fit import doubt_before_fetching, fit_selection, something_that_fits
from app.interrupt import Interrupt
from app.local_pair import LocalModel, LocalPair
from app.machine import machine_with
from app.options import LoadChoices
from app.paths import Paths, writable
from app.plan import fit_into_memory
from app.selection import NO_DRAFT, Choice, Selection, Selector
from app.terminal import FractionBar, ask_yes, person_present, say
from app.tune.store import tuned_draft, tuned_settings
from engine import Engine, EngineProcess, LoadCancelled, LoadConfig, LoadProgress
from models import ChecksumMismatch, Hardware, Inventory, ModelFile, Offline, read_gguf
from models.inventory import current_record

LOADING = {"target": "loading the model", "draft": "loading the draft model", "measure": "measuring this machine"}
BEHIND_SCREEN = 5
"""The chat's engine takes every core it is given; what is typed and drawn meanwhile goes before it."""


class FilesMissing(AppError):
    """Files that are needed are not on this disk, and may not be fetched."""

    def __init__(self, text: str, files: Sequence[ModelFile]) -> None:
        super().__init__(text)
        self.files = tuple(files)


class Front(Protocol):
    """Whoever hears of a choice of files, and is asked."""

    def say(self, line: str) -> None:
        """A remark."""

    def refusal(self, names: str, size: str, models_dir: Path) -> str | None:
        """None if these files may be downloaded; otherwise why not, in words."""

    def fetch(self, files: Sequence[ModelFile], models_dir: Path, *, offline: bool = False) -> object:
        """Have the files on disk; `offline` only checks what is there. Raises ModelsError, or Interrupted."""


class TerminalFront:
    """Questions, remarks and bars on standard error."""

    def say(self, line: str) -> None:
        say(line)

    def refusal(self, names: str, size: str, models_dir: Path) -> str | None:
        if not person_present():
            return f"not on this disk: {names} ({size}); add --yes to download, or name a file with --target"
        if ask_yes(f"Not on this disk yet: {names}. Download {size} to {models_dir}?"):
            return None
        return "no model to answer with; --target names a file of your own"

    def fetch(self, files: Sequence[ModelFile], models_dir: Path, *, offline: bool = False) -> object:
        return fetch(files, models_dir, offline=offline)


def local_pair(choices: LoadChoices, paths: Paths, modes: Sequence[str], *, tuned: bool = True) -> LocalPair:
    """The model files for `choices`, fetched where they are missing, and how to load them so that they fit. No draft is
    loaded that no mode would use. For commands: it asks and tells at the terminal. `tuned`: as in `fitted`.

    Raises AppError or ModelsError.
    """
    front = TerminalFront()
    return fitted(files_for(choices, paths, modes, front), choices, paths, modes, front, tuned=tuned)


def files_for(choices: LoadChoices, paths: Paths, modes: Sequence[str], front: Front) -> LocalPair:
    """The first half of `local_pair`: which files, all on disk. Raises AppError (FilesMissing) or ModelsError."""
    wants_draft = any(mode not in ("plain", "ngram") for mode in modes)
    selector = Selector.at(paths)
    inventory = selector.inventory
    selection = selector.select(choices.target, choices.draft if wants_draft else NO_DRAFT)
    if selection.remark:
        front.say(selection.remark)
    if not wants_draft and choices.draft not in (None, NO_DRAFT):
        front.say(f"{' and '.join(modes)} decoding uses no draft model, so --draft is left out")

    models = [selection.target] + ([selection.draft] if selection.draft else [])
    draft = selection.draft
    if missing := _missing([model.file for model in models if model.file], inventory, front):
        if not choices.force:
            _weigh_download(selection, choices, selector, front)
        if _may_fetch(missing, choices, paths, front, optional=_is_optional(missing, selection)):
            front.fetch(missing, paths.models, offline=choices.offline)
        else:
            draft = None
    needs_draft = _need_draft(modes)
    if needs_draft and draft is None:
        raise AppError(f"mode {needs_draft[0]} needs a draft model; name one with --draft, or use another mode")
    pair = LocalPair(_on_disk(selection.target, inventory), _on_disk(draft, inventory) if draft else None)
    for model in (pair.target, pair.draft):
        if model is not None and model.sha256 is None:
            read_gguf(model.path)  # a malformed header is one line here; llama.cpp may end the process over it
    if choices.draft is None and draft is not None and (better := tuned_draft(paths, pair)):
        return replace(pair, draft=LocalModel(better))
    return pair


def fitted(
    pair: LocalPair, choices: LoadChoices, paths: Paths, modes: Sequence[str], front: Front, *, tuned: bool = True
) -> LocalPair:
    """The second half: `pair` with what it has to do without to fit into the memory that is free now, which is said.
    `tuned`: with what `paceline tune` found for it here; a comparison of equals goes without.

    Raises AppError when it does not fit at all.
    """
    selector = Selector.at(paths)
    machine = this_machine(selector.inventory.models_dir)
    plan = fit_into_memory(
        pair.target.path, pair.draft.path if pair.draft else None, choices, machine,
        keep_draft=bool(_need_draft(modes)) or choices.draft is not None,
        instead=lambda: something_that_fits(selector, machine),
        sizes=lambda use_draft, settings: exact_sizes(
            pair.target.path, pair.draft.path if pair.draft and use_draft else None, settings
        ),
        tuned=tuned_settings(paths, pair, choices.fixed()) if tuned else {},
    )
    if plan.remark:
        front.say(plan.remark)
    return replace(pair, draft=pair.draft if plan.use_draft else None, settings=plan.settings, tuned=plan.tuned)


def _need_draft(modes: Sequence[str]) -> list[str]:
    return [mode for mode in modes if mode == "draft" or mode.startswith("fixed:")]


def this_machine(models_dir: Path) -> Hardware:
    """What there is to load into, the GPUs of this process's llama.cpp included."""
    from engine.llama import binding

    return machine_with(models_dir, binding.devices())


def _weigh_download(selection: Selection, choices: LoadChoices, selector: Selector, front: Front) -> None:
    """Raise AppError rather than download what cannot run here; where an estimate leaves doubt, say so."""
    machine = this_machine(selector.inventory.models_dir)
    doubt, certain = doubt_before_fetching(
        fit_selection(choices.target or "", selection, selector.inventory, machine, choices)
    )
    if doubt is None:
        return
    instead = something_that_fits(selector, machine)
    if not certain:
        front.say("; ".join(part for part in (doubt, instead) if part))
        return
    raise AppError("; ".join(part for part in (doubt, instead, "--force fetches and loads it all the same") if part))


@contextmanager
def running_engine(pair: LocalPair, choices: LoadChoices, paths: Paths) -> Iterator[tuple[Engine, Interrupt]]:
    """Load `pair`, tell what the engine has to say about it, and close it afterwards.

    Inside, Ctrl-C and SIGTERM only raise the Interrupt's flag. While loading they raise Interrupted.
    """
    with Interrupt() as interrupt:
        with FractionBar() as bar:

            def on_progress(progress: LoadProgress) -> bool:
                bar.show(LOADING[progress.stage], progress.fraction)
                return not interrupt.seen

            try:
                engine = Engine(load_config(pair, choices, paths, say), on_progress)
            except LoadCancelled:
                raise Interrupted from None
        with engine:
            for notice in engine.notices:
                say(notice)
            try:
                yield engine, interrupt
            finally:
                interrupt.hook = None  # what it calls is about to be freed


@dataclass(frozen=True, slots=True)
class Loaded:
    """A pair that runs in a process of its own."""

    process: EngineProcess
    pair: LocalPair


def loaded_process(
    pair: LocalPair, choices: LoadChoices, paths: Paths, front: Front, on_stage: Callable[[str, float], None]
) -> Loaded:
    """Load `pair` in a process of its own. `on_stage` hears what is being done, in words, and the fraction of it that is
    done; whatever it raises ends that process at once. Raises EngineError."""

    def on_progress(progress: LoadProgress) -> bool:
        on_stage(LOADING[progress.stage], progress.fraction)
        return True

    return Loaded(EngineProcess(load_config(pair, choices, paths, front.say), on_progress, niceness=BEHIND_SCREEN), pair)


def load_config(pair: LocalPair, choices: LoadChoices, paths: Paths, remark: Callable[[str], None]) -> LoadConfig:
    """What to load and how. What cannot be kept on this disk (measured costs, llama.cpp's log) is done without."""
    keeps_profiles, keeps_logs = writable(paths.profiles), writable(paths.logs)
    if not keeps_profiles:
        remark(f"cannot write to {paths.profiles}: what is learned about this machine's speed will not be kept")
    return LoadConfig(
        target=pair.target.path,
        draft=pair.draft.path if pair.draft else None,
        profile_dir=paths.profiles if keeps_profiles else None,
        log_file=paths.engine_log if keeps_logs else None,
        **{**pair.tuned, **choices.fixed(), **pair.settings},
    )


def _missing(files: Sequence[ModelFile], inventory: Inventory, front: Front) -> list[ModelFile]:
    """Those of `files` that have to be downloaded. One that somebody copied into place is checked, not fetched."""
    unchecked = [f for f in files if not inventory.path_of(f) and inventory.location(f).is_file()]
    if unchecked:
        with suppress(Offline, ChecksumMismatch):
            front.fetch(unchecked, inventory.models_dir, offline=True)
    return [file for file in files if not inventory.path_of(file)]


def _is_optional(missing: Sequence[ModelFile], selection: Selection) -> bool:
    return bool(selection.draft_implied and selection.draft and list(missing) == [selection.draft.file])


def _may_fetch(
    missing: Sequence[ModelFile], choices: LoadChoices, paths: Paths, front: Front, *, optional: bool
) -> bool:
    """Leave to download. False only if `optional`; raises FilesMissing where the files are needed and may not come."""
    names = " and ".join(file.title or file.name for file in missing)
    if choices.offline:
        refusal: str | None = f"not on this disk, and --offline rules out fetching: {names}"
    else:
        refusal = None if choices.yes else front.refusal(names, total_size(missing), paths.models)
    if refusal is None:
        return True
    if not optional:
        raise FilesMissing(refusal, missing)
    front.say(f"running without a draft model: {refusal}")
    return False


def _on_disk(choice: Choice, inventory: Inventory) -> LocalModel:
    path = choice.path or (inventory.path_of(choice.file) if choice.file else None)
    if path is None:
        raise AppError(f"{choice.file.name if choice.file else 'the model'} is not on this disk")
    record = current_record(path)
    return LocalModel(path, record.sha256 if record else None)
