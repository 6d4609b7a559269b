"""The rules that keep the packages apart, read from the import statements themselves."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("app", "engine", "models")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
LONGEST = 400


def imports(path: Path) -> Iterator[str]:
    """Every module named by an import statement of the file, wherever it stands in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""


def importers(package: str, among: list[Path] = SOURCES) -> set[str]:
    """The files that import `package` or something in it."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in among
        for name in imports(path)
        if name == package or name.startswith(package + ".")
    }


def inside(package: str) -> list[Path]:
    return [path for path in SOURCES if path.relative_to(ROOT).parts[0] == package]


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("engine", "models"), ("engine", "app"), ("models", "engine"), ("models", "app"),
        ("engine", "textual"), ("models", "textual"), ("engine", "huggingface_hub"), ("models", "llama_cpp"),
        ("engine", "click"), ("models", "click"), ("engine", "rich"), ("models", "rich"),
    ],
)
def test_a_package_never_imports_what_is_not_its_business(package: str, forbidden: str) -> None:
    assert importers(forbidden, inside(package)) == set()


def test_llama_cpp_is_imported_in_one_file() -> None:
    assert importers("llama_cpp") == {"engine/llama/binding.py"}


def test_only_the_wiring_knows_engine_and_models() -> None:
    assert importers("engine") & importers("models") & {p.relative_to(ROOT).as_posix() for p in inside("app")} == {"app/wiring.py"}


def test_widgets_are_known_to_the_interface_only() -> None:
    assert all(path.startswith("app/tui/") for path in importers("textual"))


def test_packages_import_no_tests_and_no_scripts() -> None:
    assert importers("tests") | importers("scripts") == set()


def test_no_module_is_too_long() -> None:
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def test_every_module_says_what_it_is_for() -> None:
    undocumented = [
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        if (text := path.read_text(encoding="utf-8").strip()) and not ast.get_docstring(ast.parse(text))
    ]
    assert undocumented == []


def test_every_library_in_use_is_declared() -> None:
    """What comes along with something else today may be gone tomorrow."""
    declared = {
        re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower().replace("_", "-")
        for requirement in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    }
    owners = packages_distributions()
    used = {name.split(".")[0] for path in SOURCES for name in imports(path)} - sys.stdlib_module_names - set(PACKAGES)
    undeclared = {
        name for name in used
        if not declared & {owner.lower().replace("_", "-") for owner in owners.get(name, [name])}
    }
    assert undeclared == set()
