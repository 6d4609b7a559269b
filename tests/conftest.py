"""Shared fixtures: tiny real models, written once per test session, and no network but loopback."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import tiny_models

os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # or ggml's abort() starts a debugger on the test


@pytest.fixture(scope="session")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the session's tiny models live. Fixtures below share it; a test that writes uses tmp_path."""
    return tmp_path_factory.mktemp("tiny-models")


@pytest.fixture(scope="session")
def target(models_dir: Path) -> Path:
    return tiny_models.tiny_target(models_dir)


@pytest.fixture(scope="session")
def drafts(target: Path) -> dict[str, Path]:
    """Drafts for `target` by how often they agree with it: `good` about 0.8, `fair` 0.4, `poor` 0.15."""
    return {name: tiny_models.noisy_copy(target, n) for name, n in (("good", 0.05), ("fair", 0.2), ("poor", 0.5))}


@pytest.fixture(scope="session")
def draft(drafts: dict[str, Path]) -> Path:
    return drafts["good"]


@pytest.fixture(scope="session")
def sliding(models_dir: Path) -> Path:
    return tiny_models.sliding_window(models_dir)


@pytest.fixture(scope="session")
def recurrent(models_dir: Path) -> Path:
    return tiny_models.recurrent(models_dir)


@pytest.fixture(scope="session")
def hybrid(models_dir: Path) -> Path:
    return tiny_models.hybrid(models_dir)


@pytest.fixture(scope="session")
def mismatched(models_dir: Path) -> Path:
    return tiny_models.mismatched_vocab(models_dir)


@pytest.fixture(scope="session")
def padded(models_dir: Path) -> Path:
    """The target's weights and texts, and 384 unused ids: more than llama.cpp's own check allows."""
    return tiny_models.padded_vocab(models_dir)


@pytest.fixture(scope="session")
def bos_model(models_dir: Path) -> Path:
    """Its tokenizer adds BOS and its template writes BOS as well."""
    return tiny_models.tiny_target(models_dir, "bos", add_bos=True, template=tiny_models.CHATML_WITH_BOS)


@pytest.fixture(scope="session")
def thinking(models_dir: Path) -> Path:
    return tiny_models.tiny_target(models_dir, "thinking", template=tiny_models.THINKING)


@pytest.fixture(scope="session")
def truncated(target: Path) -> Path:
    return tiny_models.truncated(target)


@pytest.fixture(scope="session")
def aborting(models_dir: Path) -> Path:
    return tiny_models.aborting(models_dir)


@pytest.fixture(autouse=True, scope="session")
def _loopback_only() -> Iterator[None]:
    """Any connection or name look-up beyond this machine fails the test that makes it."""
    patch = pytest.MonkeyPatch()

    def guarded(real: Callable[..., Any], host_of: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            host = host_of(*args)
            if isinstance(host, bytes):
                host = host.decode()
            if host and host != "localhost" and host != "::1" and not str(host).startswith("127."):
                raise RuntimeError(f"a test tried to reach {host}: tests have no network but loopback")
            return real(*args, **kwargs)

        return call

    def peer(_sock: socket.socket, address: Any) -> Any:
        return address[0] if isinstance(address, tuple) else None  # a string is a Unix socket's path

    patch.setattr(socket.socket, "connect", guarded(socket.socket.connect, peer))
    patch.setattr(socket.socket, "connect_ex", guarded(socket.socket.connect_ex, peer))
    patch.setattr(socket, "getaddrinfo", guarded(socket.getaddrinfo, lambda host, *_: host))
    yield
    patch.undo()
