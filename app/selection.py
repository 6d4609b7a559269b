"""Which model files a name means. Pure lookups in the catalogue and on disk; fetches nothing.

A path is taken as it is; `hf:owner/repo/file.gguf` is a file of the hub; any other name is a pair or a file of the
catalogue, or else a model that was imported or made here. Nothing at all is the starter pair, or, while that is not here,
another pair that is. A target from the catalogue brings its usual draft along.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app.errors import AppError
from app.local_models import local_path
from app.paths import Paths, typed_path
from models import Catalogue, Inventory, ModelFile, Pair, load_catalogue, parse_hub_reference
from models.errors import UnknownModel

STARTER = "starter"
NO_DRAFT = "none"


@dataclass(frozen=True, slots=True)
class Choice:
    """One model to load: a file somebody pointed at, or a known one that may still have to come."""

    path: Path | None = None
    file: ModelFile | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """A target and what drafts for it."""

    target: Choice
    draft: Choice | None = None
    draft_implied: bool = False
    """True if nobody asked for this draft: it is the target's usual partner."""
    remark: str | None = None
    """One line the user should know about the choice."""


class Selector:
    """Choices against one catalogue and one models directory."""

    def __init__(self, catalogue: Catalogue, inventory: Inventory) -> None:
        self.catalogue = catalogue
        self.inventory = inventory

    @classmethod
    def at(cls, paths: Paths) -> Selector:
        """The catalogue with the user's own entries, and the models on this disk. Raises ModelsError."""
        return cls(load_catalogue(paths.config), Inventory(paths.models))

    def select(self, target: str | None, draft: str | None) -> Selection:
        """The files for `--target` and `--draft`. Raises AppError or UnknownModel."""
        pair, chosen = self._target(target)
        if draft == NO_DRAFT:
            return Selection(chosen)
        if draft is not None:
            return Selection(chosen, self._draft(draft))
        if pair is None or pair.draft is None:
            return Selection(chosen)
        if pair.unusable:
            return Selection(chosen, remark=f"{pair.title}: no draft model is used; {pair.unusable}")
        return Selection(chosen, Choice(file=pair.draft), draft_implied=True)

    def files_named(self, name: str) -> list[ModelFile]:
        """What `models pull` and `models remove` mean by a name: a pair's files, one file, or one of the hub's."""
        pair = self._pair_named(name)
        return list(pair.files) if pair else [self._file_named(name)]

    def _target(self, name: str | None) -> tuple[Pair | None, Choice]:
        pair = self._default_pair() if name is None else self._pair_named(name)
        if pair is None:
            choice = self._model(STARTER if name is None else name)
            return self._pair_of(choice), choice
        return pair, Choice(file=_usable(pair.target))

    def _draft(self, name: str) -> Choice:
        pair = self._pair_named(name)
        if pair is not None and pair.draft is not None:
            return Choice(file=_usable(pair.draft))
        return self._model(name)

    def _model(self, name: str) -> Choice:
        path = typed_path(name)
        looks_like_path = "/" in name or "\\" in name or name.lower().endswith(".gguf")
        if looks_like_path and not name.startswith("hf:"):
            if path.is_dir():
                raise AppError(f"{name} is a directory; give the GGUF file in it")
            if path.exists():
                return Choice(path=path)
        try:
            return Choice(file=_usable(self._file_named(name)))
        except UnknownModel:
            if not name.startswith("hf:") and (local := local_path(name, self.inventory)):
                return Choice(path=local)
            if looks_like_path and not name.startswith("hf:"):
                raise AppError(f"there is no file {name}") from None
            raise

    def _file_named(self, name: str) -> ModelFile:
        return parse_hub_reference(name) if name.startswith("hf:") else self.catalogue.find_file(name)

    def _pair_named(self, name: str) -> Pair | None:
        return next((pair for pair in self.catalogue.pairs if pair.name == name), None)

    def _pair_of(self, target: Choice) -> Pair | None:
        """The pair that a single file is the target of, if it is one of ours."""
        for pair in self.catalogue.pairs:
            if pair.draft is None or pair.unusable:
                continue
            if target.file == pair.target or (target.path and _same(target.path, self.inventory.location(pair.target))):
                return pair
        return None

    def _default_pair(self) -> Pair:
        starter = self.catalogue.pair(STARTER)
        usable = (pair for pair in self.catalogue.pairs if not pair.target.unusable)
        here = (pair for pair in (starter, *usable) if self.inventory.path_of(pair.target))
        return next(here, starter)


def _usable(file: ModelFile) -> ModelFile:
    if file.unusable:
        raise AppError(f"{file.name} cannot be used: {file.unusable}")
    return file


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()
