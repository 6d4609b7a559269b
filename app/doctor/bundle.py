"""A text file for a bug report: what `doctor` found and the ends of the logs, without names, home paths and tokens.

One plain file, so that whoever sends it can read all of it first. Chats and prompts are in none of its sources.
"""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from app.doctor.checks import Finding
from app.doctor.facts import Facts
from app.doctor.screen import as_text, lines, verdict
from app.paths import Paths
from app.sanitize import sanitize

LOG_BYTES = 20_000
_GENERIC = {"root", "user", "admin", "administrator", "localhost"}
_HOMES = re.compile(r"(?i)(/home/|/Users/|\\Users\\\\?)[^/\\\s:\"']+")
_TOKENS = re.compile(r"\bhf_[A-Za-z0-9]{8,}\b|(?i:\bauthorization\b[: ]+(?:bearer )?\S+|\bbearer \S+)|(?<=://)[^/\s@]+(?=@)")
"""The hub's tokens, what follows an Authorization header, and names and passwords in addresses."""


@dataclass(frozen=True, slots=True)
class Personal:
    """What must not be in the file."""

    homes: tuple[str, ...]
    names: tuple[str, ...]
    secrets: tuple[str, ...] = ()

    @classmethod
    def here(cls, environ: Mapping[str, str] | None = None) -> Personal:
        """Of the person and the machine this runs for."""
        environ = os.environ if environ is None else environ
        homes, names = [environ.get("HOME", ""), environ.get("USERPROFILE", "")], [platform.node()]
        with suppress(OSError, KeyError, RuntimeError):
            homes.append(str(Path.home()))
        with suppress(OSError, KeyError, ImportError):
            names.append(getpass.getuser())
        names += [environ.get(variable, "") for variable in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")]
        names += _full_name().split()
        secrets = [value for name, value in environ.items() if name.endswith(("_TOKEN", "_KEY", "_PASSWORD"))]
        return cls(tuple(filter(None, homes)), tuple(filter(None, names)), tuple(s for s in secrets if len(s) > 7))

    def redact(self, text: str) -> str:
        """`text` without them. Homes first, as names are parts of them."""
        for secret in self.secrets:
            text = text.replace(secret, "[secret]")
        text = _TOKENS.sub("[secret]", text)
        for home in sorted({home.rstrip("/\\") for home in self.homes}, key=len, reverse=True):
            if len(home) > 1:
                for spelling in {home, home.replace("\\", "\\\\"), home.replace("\\", "/")}:
                    text = re.sub(re.escape(spelling) + r"(?![A-Za-z0-9_.-])", "~", text)
        text = _HOMES.sub(r"\1[user]", text)
        for name in sorted(set(self.names), key=len, reverse=True):
            if name.lower() not in _GENERIC and len(name) > 1:
                text = re.sub(rf"(?i)(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", "[name]", text)
        return text


def bundle(facts: Facts, findings: Iterable[Finding], paths: Paths, personal: Personal) -> str:
    """The file's text."""
    findings = list(findings)
    data = {**facts.as_json(), "findings": [asdict(finding) for finding in findings]}
    sections = [
        ("doctor", as_text(lines(facts)) + verdict(findings)),
        ("as JSON", json.dumps(data, indent=1)),
        (f"the end of {paths.engine_log.name}", _end_of(paths.engine_log)),
        (f"the end of {paths.crash_log.name}", _end_of(paths.crash_log)),
    ]
    text = "".join(f"===== {title}\n{body.rstrip() or '(empty)'}\n\n" for title, body in sections)
    return personal.redact(sanitize(text))


def _end_of(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def _full_name() -> str:
    """As the system's user list has it; none on Windows."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_gecos.split(",")[0]
    except (ImportError, KeyError, AttributeError):
        return ""
