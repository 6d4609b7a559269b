"""Presets: ours in assets/presets.toml, the user's in config/presets.toml, which replace ours by name.

One schema for both, `[[presets]]`; to hand presets on, hand on the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from app.paths import Paths
from app.settings.files import SettingsError, read_text, read_toml, write_text
from app.settings.values import Preset

FILE = "presets.toml"
BUILT_IN = Path(__file__).resolve().parent.parent.parent / "assets" / FILE


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    presets: tuple[Preset, ...] = ()


def built_in_presets() -> tuple[Preset, ...]:
    """The presets that come with Paceline."""
    return read_toml(BUILT_IN, _Document).presets


def own_presets(paths: Paths) -> tuple[Preset, ...]:
    """The user's presets, in the file's order. Raises SettingsError."""
    return read_presets(paths.config / FILE)


def read_presets(path: Path) -> tuple[Preset, ...]:
    """The presets of a file. Raises SettingsError, also for a name that is there twice."""
    presets = read_toml(path, _Document).presets
    if len(by_name := {preset.name: preset for preset in presets}) < len(presets):
        twice = next(preset.name for preset in presets if by_name[preset.name] is not preset)
        raise SettingsError(f"{path}: the preset {twice!r} is there twice")
    return presets


def load_presets(paths: Paths) -> tuple[Preset, ...]:
    """All presets: the user's first, then ours that the user did not replace. Raises SettingsError."""
    own = own_presets(paths)
    taken = {preset.name for preset in own}
    return (*own, *(preset for preset in built_in_presets() if preset.name not in taken))


def save_presets(paths: Paths, presets: Sequence[Preset]) -> None:
    """Make `presets` the user's own. Comments in the file stay. Raises SettingsError."""
    import tomlkit
    from tomlkit.items import AoT

    path = paths.config / FILE
    own_presets(paths)  # what is not valid is not built upon: the user mends it first
    document = tomlkit.parse(read_text(path))
    old = document.get("presets")
    tables = {str(table["name"]): table for table in old} if old is not None else {}
    kept = [_updated(tables.get(preset.name, tomlkit.table()), preset) for preset in presets]
    if isinstance(old, AoT) and list(tables) == [preset.name for preset in presets]:
        pass  # changed in place
    else:
        document.pop("presets", None)
        array = tomlkit.aot()
        for table in kept:
            array.append(table)
        if kept:
            document["presets"] = array
    write_text(path, tomlkit.dumps(document))


def _updated(table: Any, preset: Preset) -> Any:
    """The preset's table brought up to date, its comments kept."""
    values = {name: value for name, value in preset.model_dump(mode="json").items() if value not in (None, [], "")}
    for name in _absent(table, values):
        del table[name]
    for name, value in values.items():
        if name not in table or table[name] != value:
            table[name] = _multiline(value)
    return table


def _absent(table: Any, values: Iterable[str]) -> list[str]:
    return [name for name in table if name not in set(values)]


def _multiline(value: Any) -> Any:
    """A text of several lines as TOML writes one that people will read."""
    import tomlkit

    return tomlkit.string(value, multiline=True) if isinstance(value, str) and "\n" in value else value
