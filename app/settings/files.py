"""Reads and writes config/settings.toml. The user's comments, order and unknown spacing outlive a save.

Writing touches only what changes: a value that is the default and not in the file stays out of it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from app.atomic import write_atomically
from app.errors import AppError
from app.paths import Paths, writable
from app.settings.values import Settings

FILE = "settings.toml"

Document = TypeVar("Document", bound=BaseModel)


class SettingsError(AppError):
    """A settings file cannot be used or written; one line with the file, line and field."""


def load_settings(paths: Paths) -> Settings:
    """The user's settings; the defaults where there is no file. Raises SettingsError."""
    return read_toml(paths.config / FILE, Settings)


def save_settings(paths: Paths, settings: Settings, since: Settings | None = None) -> None:
    """Write `settings`; with `since`, only what differs from it, so that another window's changes stay.

    Raises SettingsError; a file that cannot be read is not overwritten.
    """
    import tomlkit

    path = paths.config / FILE
    text = read_text(path)
    load_settings(paths)  # what is not valid is not built upon: the user mends it first
    document = tomlkit.parse(text)
    before = since.model_dump(mode="json") if since is not None else None
    _merge(document, settings.model_dump(mode="json"), Settings().model_dump(mode="json"), before)
    write_text(path, tomlkit.dumps(document))


def read_toml(path: Path, schema: type[Document]) -> Document:
    """The file as a `schema`; its defaults where there is none. Raises SettingsError with file, line and field."""
    text = read_text(path)
    try:
        return schema.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        where = f"{path}, line {found[1]}" if found else str(path)
        reason = re.sub(r" \(at .*\)$", "", str(error))
        raise SettingsError(f"{where}: not valid TOML: {reason}") from None
    except ValidationError as error:
        from models.toml_lines import line_of  # the catalogue's schema comes along: not for a good file

        field, reason = describe(error)
        line = line_of(text, error.errors(include_url=False)[0]["loc"])
        raise SettingsError(f"{path}, line {line}: {field} {reason}") from None


def read_text(path: Path) -> str:
    """The file's text, empty where there is none. Raises SettingsError."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8 text (byte {error.start} does not decode)") from None
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from None


def write_text(path: Path, text: str) -> None:
    """Replace the file, its folder made where it is missing. Raises SettingsError."""
    if not writable(path.parent):
        raise SettingsError(f"cannot write to {path.parent}: the change holds until Paceline ends")
    try:
        write_atomically(path, text)
    except OSError as error:
        raise SettingsError(f"cannot write {path}: {error.strerror}; the change holds until Paceline ends") from None


def describe(error: ValidationError) -> tuple[str, str]:
    """The first field that is wrong, and why, in words that follow its name."""
    detail = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in detail["loc"] if isinstance(part, str))
    if detail["type"] == "missing":
        return field, "is missing"
    if detail["type"] == "extra_forbidden":
        return field, "is not a setting"
    reason = detail["msg"].removeprefix("Value error, ").removeprefix("Input ").split(", unable")[0]
    reason = re.sub(r"^should", "must", reason[:1].lower() + reason[1:])
    return field, f"is {repr(detail['input'])[:60]}; it {reason}"


def _merge(
    table: MutableMapping[str, Any], values: Mapping[str, Any], defaults: Mapping[str, Any],
    before: Mapping[str, Any] | None,
) -> None:
    """Bring `table` to `values`, writing no default that is not there and, with `before`, nothing that did not change."""
    for name, value in values.items():
        if before is not None and before.get(name) == value:
            continue
        default = defaults.get(name)
        if isinstance(value, dict):
            _merge_table(table, name, value, default or {}, before.get(name, {}) if before is not None else None)
        elif value is None:
            table.pop(name, None)
        elif name in table:
            if table[name] != value:
                table[name] = value
        elif value != default:
            table[name] = value


def _merge_table(
    parent: MutableMapping[str, Any], name: str, values: Mapping[str, Any], defaults: Mapping[str, Any],
    before: Mapping[str, Any] | None,
) -> None:
    import tomlkit

    table = parent.get(name)
    if table is None:
        table = tomlkit.table()
    for gone in [key for key in table if key not in values and (before is None or key in before)]:
        del table[gone]
    _merge(table, values, defaults, before)
    if table and name not in parent:
        parent[name] = table
