"""A local HTTP server that answers as the Hugging Face hub does, faults on request included.

HEAD gives commit, SHA-256 and size in the hub's own headers; GET redirects to a "CDN" under another host name, which
serves ranges. Each GET of a body takes the next fault from `faults`; with none left the body comes whole.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "c" * 40


@dataclass
class Fault:
    """What goes wrong with one answer. `status` alone refuses; the others spoil the body."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    drop_after: int | None = None
    """Close the connection after so many bytes of the body, as a lost connection does."""
    stall_after: int | None = None
    """Send so many bytes, then nothing until the client gives up."""
    flip_at: int | None = None
    """Send the byte at this offset of the file wrong."""
    ignore_range: bool = False


@dataclass
class Request:
    method: str
    path: str
    range: str | None
    authorization: str | None
    host: str
    agent: str


class HubServer:
    """`files` maps owner/repo/file to bytes. `requests` is everything asked so far."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.faults: deque[Fault] = deque()
        self.head_faults: deque[Fault] = deque()
        self.requests: list[Request] = []
        self.bytes_per_second: float | None = None
        self.answer_after = 0.0
        self.sha256_of: dict[str, str] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._closing = threading.Event()
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def bodies(self) -> list[Request]:
        return [request for request in self.requests if request.path.startswith("/cdn/")]

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def _handler(hub: HubServer) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def _note(self) -> None:
                get = self.headers.get
                hub.requests.append(
                    Request(
                        self.command,
                        self.path,
                        get("Range"),
                        get("Authorization"),
                        get("Host", ""),
                        get("User-Agent", ""),
                    )
                )

            def do_HEAD(self) -> None:
                self._note()
                hub._closing.wait(hub.answer_after)
                if hub.head_faults and self._refuse(hub.head_faults.popleft()):
                    return
                name = self._name()
                body = hub.files.get(name)
                if body is None:
                    known = any(file.startswith("/".join(name.split("/")[:2]) + "/") for file in hub.files)
                    code = "EntryNotFound" if known else "RepoNotFound"
                    self._refuse(Fault(status=404, headers={"X-Error-Code": code}))
                    return
                self.send_response(302)
                self.send_header("X-Repo-Commit", COMMIT)
                digest = hub.sha256_of.get(name) or hashlib.sha256(body).hexdigest()
                self.send_header("X-Linked-Etag", f'"{digest}"')
                self.send_header("X-Linked-Size", str(len(body)))
                self.send_header("Location", f"http://localhost:{hub.port}/cdn/{name}")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self) -> None:
                self._note()
                if not self.path.startswith("/cdn/"):
                    self.send_response(302)
                    self.send_header("Location", f"http://localhost:{hub.port}/cdn/{self._name()}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                fault = hub.faults.popleft() if hub.faults else Fault()
                if not self._refuse(fault):
                    self._send(bytearray(hub.files[self.path.removeprefix("/cdn/")]), fault)

            def _send(self, body: bytearray, fault: Fault) -> None:
                if fault.flip_at is not None:
                    body[fault.flip_at] ^= 0xFF
                wanted = self.headers.get("Range")
                start = (
                    int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and not fault.ignore_range else 0
                )
                self.send_response(206 if start else 200)
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
                self.send_header("Content-Length", str(len(body) - start))
                self.end_headers()
                cut = fault.drop_after if fault.drop_after is not None else fault.stall_after
                end = len(body) if cut is None else min(len(body), start + cut)
                step = 1 << 16
                for at in range(start, end, step):
                    self.wfile.write(body[at : min(at + step, end)])
                    if hub.bytes_per_second:
                        time.sleep(step / hub.bytes_per_second)
                if fault.stall_after is not None:
                    self.wfile.flush()
                    hub._closing.wait(60)
                self.close_connection = cut is not None

            def _refuse(self, fault: Fault) -> bool:
                if not fault.status:
                    return False
                self.send_response(fault.status)
                for header, value in fault.headers.items():
                    self.send_header(header, value)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return True

            def _name(self) -> str:
                owner, repo, _, _, file = self.path.lstrip("/").split("/", 4)
                return f"{owner}/{repo}/{file}"

        return Handler


@contextmanager
def hub_server() -> Iterator[HubServer]:
    server = HubServer()
    try:
        yield server
    finally:
        server.close()
