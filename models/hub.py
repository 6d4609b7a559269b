"""The Hugging Face hub as a source: what it says about a file, and its bytes into a PartFile.

huggingface_hub supplies addresses, tokens, proxies, the HTTP session and the reading of the hub's own errors. The bytes
are streamed here because since its version 2 `hf_hub_download` keeps no partial file: a killed download would start
again from nothing. Honours HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE. Imported only when a download starts: the library
costs a third of a second.
"""

from __future__ import annotations

import os
import queue
import re
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

# Paceline has no telemetry, so neither has the library on its behalf: by default it names the shell's tools in its
# user agent, and makes a request of its own to learn what to look for. Read once, when the library is imported.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from huggingface_hub import get_hf_file_metadata, get_session, hf_hub_url
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]  # there, but not in its list of exports

from models.catalogue import ModelFile
from models.errors import (
    AccessDenied,
    DownloadFailed,
    HubUnreachable,
    NotOnHub,
    RateLimited,
)
from models.partfile import PartFile
from models.waiting import Waiting

# huggingface_hub 1.x speaks httpx, 2.x its successor httpx2; either one's HTTPError is the parent of this class.
_HttpError: type[BaseException] = HfHubHTTPError.__bases__[0]

ANSWER_SECONDS = 5.0
"""The hub has this long to say something about a file; name lookup, connecting and proxies included."""
STALL_SECONDS = 20.0
"""A body that brings nothing for this long is asked for again from where it stopped."""
RETRY_SECONDS = 1.0
"""The pause after a first broken connection; it doubles with each one after."""
MAX_FAILURES = 5
"""Attempts in a row that bring no byte before the hub counts as unreachable."""
MAX_WAIT_SECONDS = 120.0
"""How long the hub's wishes to come back later are followed, all in all, before giving up."""
_CHUNK_BYTES = 1 << 20


class _Busy(Exception):
    """The hub asked to come back later."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


def resolve(file: ModelFile, waiting: Waiting) -> ModelFile:
    """Ask the hub about a file: it answers within seconds and agrees with what is known, or this raises.

    Returns the file with revision, bytes and SHA-256 filled in from the hub where they were unknown.
    """
    waited = 0.0
    while True:
        try:
            facts = _within(ANSWER_SECONDS, lambda: _head(file), waiting)
            break
        except _Busy as busy:
            waited = _wait_for_turn(busy, waited, waiting)
    # For a large file the hub's etag is its SHA-256; for a small one, or behind some proxies, it is something else.
    hub_sha256 = facts.etag if re.fullmatch(r"[0-9a-f]{64}", facts.etag or "") else None
    sha256 = file.sha256 or hub_sha256
    if sha256 is None:
        raise DownloadFailed(
            f"the hub gives no SHA-256 for {_label(file)}, so it could not be verified; nothing was fetched"
        )
    size = file.bytes or facts.size
    if size is None:
        raise DownloadFailed(f"the hub gives no size for {_label(file)}; nothing was fetched")
    if facts.size not in (None, size) or hub_sha256 not in (None, sha256):
        raise DownloadFailed(
            f"the hub's {_label(file)} is not the file the catalogue describes (it was replaced there); "
            "update paceline, or name a revision"
        )
    return file.model_copy(
        update={"sha256": sha256, "bytes": size, "revision": file.revision or facts.commit_hash}
    )


def fetch(file: ModelFile, part: PartFile, *, arrived: Callable[[], None], waiting: Waiting) -> None:
    """Bring the rest of the file into `part`, going on after dropped connections from the byte reached."""
    failures, waited = 0, 0.0
    while part.length < part.bytes_expected:
        before = part.length
        try:
            _stream(file, part, arrived, waiting)
        except _Busy as busy:
            waited = _wait_for_turn(busy, waited, waiting)
        except HubUnreachable as error:
            if part.length > before:
                failures, waited = 0, 0.0
            failures += 1
            if failures >= MAX_FAILURES:
                raise
            waiting.notice(f"{error}; trying again from {part.length / 1e6:,.0f} MB")
            waiting.sleep(RETRY_SECONDS * 2.0 ** (failures - 1))


def _stream(file: ModelFile, part: PartFile, arrived: Callable[[], None], waiting: Waiting) -> None:
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if part.length:
        headers["Range"] = f"bytes={part.length}-"
    try:
        with get_session().stream(
            "GET", _url(file), headers=headers, timeout=STALL_SECONDS, follow_redirects=True
        ) as response:
            _raise_for_status(response, file)
            if part.length and not _continues_at(response, part.length):
                part.rewind_to_start()
            for chunk in response.iter_raw(_CHUNK_BYTES):
                waiting.check()
                part.append(chunk)
                arrived()
    except _HttpError as error:
        raise HubUnreachable(f"the connection to the hub broke ({_cause(error)})") from None
    if part.length < part.bytes_expected:
        raise HubUnreachable("the hub ended the file early")


def _head(file: ModelFile) -> Any:
    try:
        return get_hf_file_metadata(_url(file), timeout=ANSWER_SECONDS)
    except HfHubHTTPError as error:
        _raise_typed(error, file)
    except (_HttpError, OSError) as error:
        raise HubUnreachable(
            f"the Hugging Face hub does not answer ({_cause(error)}); check the network, or set HF_ENDPOINT"
        ) from None


def _within(seconds: float, ask: Callable[[], Any], waiting: Waiting) -> Any:
    """Run `ask` with a deadline of its own: a name lookup ignores every timeout given to the HTTP library."""
    answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((ask(), None))
        except BaseException as error:  # noqa: BLE001 - handed over to the waiting thread, which raises it
            answers.put((None, error))

    threading.Thread(target=run, daemon=True, name="hub-head").start()
    end = time.monotonic() + seconds
    while answers.empty():
        if time.monotonic() > end:
            raise HubUnreachable(
                f"the Hugging Face hub did not answer within {seconds:.0f} seconds; check the network, or set HF_ENDPOINT"
            )
        waiting.sleep(0.02)
    answer, error = answers.get()
    if error is not None:
        raise error
    return answer


def _wait_for_turn(busy: _Busy, waited: float, waiting: Waiting) -> float:
    """Wait as long as the hub asks; returns the seconds waited since anything last arrived."""
    if waited + busy.seconds > MAX_WAIT_SECONDS:
        raise RateLimited(
            f"the hub asks to wait {busy.seconds:.0f} s more before this download; "
            "pull again later, or set HF_TOKEN for a higher limit"
        )
    waiting.notice(f"the hub asks to wait {busy.seconds:.0f} s")
    waiting.sleep(busy.seconds)
    return waited + busy.seconds


def _raise_for_status(response: Any, file: ModelFile) -> None:
    try:
        hf_raise_for_status(response)
    except HfHubHTTPError as error:
        _raise_typed(error, file)


def _raise_typed(error: HfHubHTTPError, file: ModelFile) -> NoReturn:
    status = error.response.status_code
    page = f"{_endpoint()}/{file.repo}"
    if isinstance(error, GatedRepoError):
        raise AccessDenied(
            f"{file.repo} asks for its licence to be accepted; do so at {page}, then set HF_TOKEN"
        ) from None
    if isinstance(error, RepositoryNotFoundError):
        raise NotOnHub(
            f"the hub has no repository {file.repo} that you may see; check the name and HF_TOKEN"
        ) from None
    if isinstance(error, RevisionNotFoundError):
        raise NotOnHub(f"{file.repo} has no revision {file.revision}; check it, or leave it out") from None
    if isinstance(error, EntryNotFoundError) or status == 404:
        raise NotOnHub(f"{file.repo} has no file {file.file}; check the name at {page}") from None
    if status in (401, 403):
        raise AccessDenied(
            f"the hub refuses {file.repo} (HTTP {status}); set HF_TOKEN to a token that may read it"
        ) from None
    if status == 416:
        raise HubUnreachable("the hub refused the range asked for") from None
    if status == 429 or (status == 503 and "retry-after" in error.response.headers):
        raise _Busy(_retry_after(error.response.headers.get("retry-after"))) from None
    if status >= 500:
        raise HubUnreachable(
            f"the Hugging Face hub answers with an error of its own (HTTP {status}); try again later"
        ) from None
    raise DownloadFailed(f"the hub refused {_label(file)} (HTTP {status})") from None


def _retry_after(value: str | None) -> float:
    return max(1.0, float(value)) if value and re.fullmatch(r"\d{1,6}", value.strip()) else 5.0


def _continues_at(response: Any, offset: int) -> bool:
    """Whether the body starts where we stopped; some proxies ignore Range and send the whole file."""
    return response.status_code == 206 and str(response.headers.get("content-range", "")).startswith(
        f"bytes {offset}-"
    )


def _endpoint() -> str:
    """The library reads HF_ENDPOINT once, at import, and takes an empty one as an address; read here, an empty one is
    none, and it also holds for a test or a long-lived process."""
    return os.environ.get("HF_ENDPOINT", "").strip().rstrip("/") or "https://huggingface.co"


def _url(file: ModelFile) -> str:
    return hf_hub_url(file.repo, file.file, revision=file.revision, endpoint=_endpoint())


def _label(file: ModelFile) -> str:
    return f"{file.repo}/{file.file}"


def _cause(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:160].rstrip(": ")
