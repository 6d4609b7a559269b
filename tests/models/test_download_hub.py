"""Downloads against a server that behaves like the hub: what arrives is whole and right, or it is not given out."""

from __future__ import annotations

import hashlib
import threading
import time
from pathlib import Path

import pytest

import models.hub
from models import (
    AccessDenied,
    ChecksumMismatch,
    DownloadCancelled,
    DownloadFailed,
    DownloadProgress,
    HubUnreachable,
    Inventory,
    ModelsError,
    NotOnHub,
    Offline,
    RateLimited,
    download,
    parse_hub_reference,
)
from tests.models.conftest import REPO, content, model_file
from tests.models.hub_server import COMMIT, Fault, HubServer

BODY = content(3_500_000)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.hub, "STALL_SECONDS", 0.5)
    monkeypatch.setattr(models.hub, "RETRY_SECONDS", 0.02)


def serve(hub: HubServer, body: bytes = BODY, name: str = "tiny.gguf") -> None:
    hub.files[f"{REPO}/{name}"] = body


def test_a_pinned_file_arrives_under_its_name_and_is_not_fetched_twice(
    hub: HubServer, tmp_path: Path
) -> None:
    serve(hub)
    file = model_file(BODY)
    seen: list[DownloadProgress] = []
    [path] = download([file], tmp_path, progress=seen.append)
    assert path.read_bytes() == BODY
    assert seen[-1].done_bytes == seen[-1].total_bytes == len(BODY)
    assert [p.done_bytes for p in seen] == sorted(p.done_bytes for p in seen)
    asked = len(hub.requests)
    assert download([file], tmp_path) == [path]
    assert download([file], tmp_path, offline=True) == [path]
    assert len(hub.requests) == asked
    [entry] = Inventory(tmp_path).list()
    assert (entry.state, entry.record and entry.record.origin) == ("whole", "hub")
    assert path.stat().st_mode & 0o077 == 0


def test_an_unpinned_reference_takes_size_hash_and_commit_from_the_hub(
    hub: HubServer, tmp_path: Path
) -> None:
    serve(hub)
    file = parse_hub_reference(f"hf:{REPO}/tiny.gguf")
    [path] = download([file], tmp_path)
    [entry] = Inventory(tmp_path).list()
    assert entry.record is not None
    assert entry.record.sha256 == hashlib.sha256(BODY).hexdigest()
    assert entry.record.revision == COMMIT
    assert Inventory(tmp_path).path_of(file) == path
    other = parse_hub_reference(f"hf:{REPO}@{'d' * 40}/tiny.gguf")
    assert Inventory(tmp_path).path_of(other) is None


def test_a_split_model_is_every_piece_of_it(hub: HubServer, tmp_path: Path) -> None:
    pieces = [content(400_000, seed) for seed in range(3)]
    for number, body in enumerate(pieces, start=1):
        serve(hub, body, f"big-{number:05d}-of-00003.gguf")
    file = parse_hub_reference(f"hf:{REPO}/big-00001-of-00003.gguf")
    [first] = download([file], tmp_path)
    assert first.name == "big-00001-of-00003.gguf"
    assert [p.read_bytes() for p in sorted(first.parent.glob("*.gguf"))] == pieces
    first.with_name("big-00002-of-00003.gguf").unlink()
    assert Inventory(tmp_path).path_of(file) is None


def test_dropped_connections_go_on_from_the_byte_reached(hub: HubServer, tmp_path: Path) -> None:
    serve(hub)
    hub.faults += [Fault(drop_after=1_200_000), Fault(drop_after=0), Fault(drop_after=1_100_000)]
    [path] = download([model_file(BODY)], tmp_path)
    assert path.read_bytes() == BODY
    starts = [int((r.range or "bytes=0-").split("=")[1].rstrip("-")) for r in hub.bodies()]
    assert starts[0] == 0
    assert starts[1] == starts[2] > 0
    assert starts[3] > starts[2]


def test_a_stalled_body_is_asked_for_again(hub: HubServer, tmp_path: Path) -> None:
    serve(hub)
    hub.faults.append(Fault(stall_after=2_000_000))
    [path] = download([model_file(BODY)], tmp_path)
    assert path.read_bytes() == BODY


def test_a_server_that_ignores_ranges_is_read_from_the_start(hub: HubServer, tmp_path: Path) -> None:
    serve(hub)
    hub.faults += [Fault(drop_after=2_500_000), Fault(ignore_range=True)]
    [path] = download([model_file(BODY)], tmp_path)
    assert path.read_bytes() == BODY


def test_a_connection_that_never_brings_anything_gives_up_and_keeps_the_part(
    hub: HubServer, tmp_path: Path
) -> None:
    serve(hub)
    hub.faults += [Fault(drop_after=1_500_000)] + [Fault(drop_after=0)] * 20
    file = model_file(BODY)
    with pytest.raises(HubUnreachable):
        download([file], tmp_path)
    inventory = Inventory(tmp_path)
    kept = inventory.partial_bytes(file)
    assert kept > 0
    assert [entry.state for entry in inventory.list()] == ["partial"]
    assert inventory.path_of(file) is None
    hub.faults.clear()
    asked = len(hub.bodies())
    download([file], tmp_path)
    assert hub_offset(hub, asked) == kept


def hub_offset(hub: HubServer, index: int) -> int:
    return int((hub.bodies()[index].range or "bytes=0-").removeprefix("bytes=").rstrip("-"))


def test_wrong_bytes_are_thrown_away(hub: HubServer, tmp_path: Path) -> None:
    serve(hub)
    hub.faults.append(Fault(flip_at=3_000_000))
    file = model_file(BODY)
    with pytest.raises(ChecksumMismatch, match="wrong SHA-256"):
        download([file], tmp_path)
    inventory = Inventory(tmp_path)
    assert inventory.path_of(file) is None
    assert not inventory.location(file).exists()
    assert inventory.partial_bytes(file) == 0
    assert download([file], tmp_path)[0].read_bytes() == BODY


def test_a_wrong_part_is_named_and_alone_fetched_again(hub: HubServer, tmp_path: Path) -> None:
    serve(hub)
    hub.faults.append(Fault(flip_at=1_000_000))  # in the fourth part of 300,000 bytes
    notices: list[str] = []
    [path] = download([model_file(BODY, mirrored=True)], tmp_path, notice=notices.append)
    assert path.read_bytes() == BODY
    assert any("part 4 of 12" in line for line in notices)
    assert hub_offset(hub, 1) == 900_000


@pytest.mark.parametrize(
    ("fault", "error", "says"),
    [
        (Fault(status=401), AccessDenied, "HF_TOKEN"),
        (Fault(status=401, headers={"X-Error-Code": "RepoNotFound"}), NotOnHub, "HF_TOKEN"),
        (Fault(status=403), AccessDenied, "HF_TOKEN"),
        (Fault(status=403, headers={"X-Error-Code": "GatedRepo"}), AccessDenied, "licence"),
        (Fault(status=404, headers={"X-Error-Code": "RepoNotFound"}), NotOnHub, "no repository"),
        (Fault(status=404, headers={"X-Error-Code": "RevisionNotFound"}), NotOnHub, "no revision"),
        (Fault(status=404, headers={"X-Error-Code": "EntryNotFound"}), NotOnHub, "no file"),
        (Fault(status=500), HubUnreachable, "HTTP 500"),
        (Fault(status=429, headers={"Retry-After": "3600"}), RateLimited, "3600"),
        (Fault(status=418), DownloadFailed, "HTTP 418"),
    ],
)
def test_each_refusal_is_one_line_that_says_what_to_do(
    hub: HubServer, tmp_path: Path, fault: Fault, error: type[ModelsError], says: str
) -> None:
    serve(hub)
    hub.head_faults.append(fault)
    with pytest.raises(error) as caught:
        download([model_file(BODY)], tmp_path)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert Inventory(tmp_path).list() == []


def test_a_refusal_in_the_middle_of_a_body_is_no_different(hub: HubServer, tmp_path: Path) -> None:
    serve(hub)
    hub.faults += [Fault(drop_after=1_500_000), Fault(status=403)]
    with pytest.raises(AccessDenied):
        download([model_file(BODY)], tmp_path)


def test_retry_after_is_waited_for(hub: HubServer, tmp_path: Path) -> None:
    serve(hub)
    wait = Fault(status=429, headers={"Retry-After": "1"})
    hub.head_faults.append(wait)
    hub.faults.append(wait)
    notices: list[str] = []
    begun = time.monotonic()
    [path] = download([model_file(BODY)], tmp_path, notice=notices.append)
    assert path.read_bytes() == BODY
    assert time.monotonic() - begun >= 2
    assert notices.count("the hub asks to wait 1 s") == 2


def test_waiting_has_an_end(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(hub)
    monkeypatch.setattr(models.hub, "MAX_WAIT_SECONDS", 1.5)
    hub.faults += [Fault(status=429, headers={"Retry-After": "1"})] * 5
    with pytest.raises(RateLimited):
        download([model_file(BODY)], tmp_path)


def test_a_hub_that_says_nothing_counts_as_unreachable_within_seconds(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models.hub, "ANSWER_SECONDS", 0.4)
    serve(hub)
    hub.answer_after = 30
    begun = time.monotonic()
    with pytest.raises(HubUnreachable):
        download([model_file(BODY)], tmp_path)
    assert time.monotonic() - begun < 2


def test_a_file_replaced_on_the_hub_is_refused_before_it_is_fetched(hub: HubServer, tmp_path: Path) -> None:
    serve(hub, content(len(BODY), seed=9))
    with pytest.raises(DownloadFailed, match="replaced"):
        download([model_file(BODY)], tmp_path)
    assert hub.bodies() == []


def test_a_file_without_a_published_hash_is_refused(hub: HubServer, tmp_path: Path) -> None:
    serve(hub)
    hub.sha256_of[f"{REPO}/tiny.gguf"] = "f" * 40
    with pytest.raises(DownloadFailed, match="no SHA-256"):
        download([parse_hub_reference(f"hf:{REPO}/tiny.gguf")], tmp_path)


def test_the_token_goes_to_the_hub_and_not_to_the_cdn(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(hub)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    download([model_file(BODY)], tmp_path)
    sent = {(r.path.startswith("/cdn/"), r.authorization) for r in hub.requests}
    assert sent == {(False, "Bearer hf_secret"), (True, None)}
    assert not any("agent" in r.path or "torch" in r.agent for r in hub.requests)


def test_offline_asks_nobody(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(hub)
    with pytest.raises(Offline):
        download([model_file(BODY, mirrored=True)], tmp_path, offline=True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Offline):
        download([model_file(BODY, mirrored=True)], tmp_path)
    assert hub.requests == []


def test_cancel_keeps_what_arrived_even_from_a_dead_connection(hub: HubServer, tmp_path: Path) -> None:
    serve(hub)
    hub.faults.append(Fault(stall_after=2_200_000))
    file = model_file(BODY)
    seen: list[DownloadProgress] = []
    begun = time.monotonic()
    with pytest.raises(DownloadCancelled):
        download([file], tmp_path, progress=seen.append, cancelled=lambda: any(p.done_bytes for p in seen))
    assert time.monotonic() - begun < 3
    assert Inventory(tmp_path).partial_bytes(file) > 0
    assert download([file], tmp_path)[0].read_bytes() == BODY


def test_several_files_arrive_at_once_and_one_failure_stops_the_rest(hub: HubServer, tmp_path: Path) -> None:
    bodies = {f"m{n}.gguf": content(500_000, n) for n in range(4)}
    for name, body in bodies.items():
        serve(hub, body, name)
    hub.bytes_per_second = 2e6
    files = [model_file(body, name) for name, body in bodies.items()]
    threads: set[str] = set()
    begun = time.monotonic()
    paths = download(files, tmp_path, progress=lambda _: threads.add(threading.current_thread().name))
    assert [path.read_bytes() for path in paths] == list(bodies.values())
    assert time.monotonic() - begun < 0.9  # one after the other they take 1.0 s
    assert threads == {threading.current_thread().name}
    with pytest.raises(NotOnHub):
        download([*files, model_file(BODY, "absent.gguf")], tmp_path)


def test_two_downloads_of_one_file_wait_for_each_other(hub: HubServer, tmp_path: Path) -> None:
    serve(hub)
    hub.bytes_per_second = 5e6
    file = model_file(BODY)
    notices: list[str] = []
    first = threading.Thread(target=download, args=([file], tmp_path))
    first.start()
    while not hub.bodies():
        time.sleep(0.01)
    [path] = download([file], tmp_path, notice=notices.append)
    first.join()
    assert path.read_bytes() == BODY
    assert len(hub.bodies()) == 1
    assert any("waiting" in line for line in notices)


def test_a_file_copied_into_place_is_checked_once_and_adopted(hub: HubServer, tmp_path: Path) -> None:
    file = model_file(BODY)
    inventory = Inventory(tmp_path)
    inventory.location(file).parent.mkdir(parents=True)
    inventory.location(file).write_bytes(BODY)
    assert inventory.path_of(file) is None
    assert download([file], tmp_path, offline=True) == [inventory.location(file)]
    assert inventory.path_of(file) == inventory.location(file)
    assert hub.requests == []


def test_an_unpinned_file_copied_into_place_is_checked_against_the_hub_and_adopted(
    hub: HubServer, tmp_path: Path
) -> None:
    serve(hub)
    file = parse_hub_reference(f"hf:{REPO}/tiny.gguf")
    inventory = Inventory(tmp_path)
    inventory.location(file).parent.mkdir(parents=True)
    inventory.location(file).write_bytes(BODY)
    download([file], tmp_path)
    assert inventory.path_of(file) is not None
    assert hub.bodies() == []


@pytest.mark.parametrize("wrong", [BODY[:-1], BODY[::-1]])
def test_a_wrong_file_in_the_way_is_replaced(hub: HubServer, tmp_path: Path, wrong: bytes) -> None:
    serve(hub)
    file = model_file(BODY)
    inventory = Inventory(tmp_path)
    inventory.location(file).parent.mkdir(parents=True)
    inventory.location(file).write_bytes(wrong)
    notices: list[str] = []
    [path] = download([file], tmp_path, notice=notices.append)
    assert path.read_bytes() == BODY
    assert any("fetching it again" in line for line in notices)


@pytest.mark.parametrize(
    ("value", "start"),
    [(None, "https://huggingface.co/"), ("", "https://huggingface.co/"), (" ", "https://huggingface.co/"),
     ("http://127.0.0.1:9/", "http://127.0.0.1:9/")],
)  # fmt: skip
def test_an_empty_endpoint_is_none(value: str | None, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    if value is not None:
        monkeypatch.setenv("HF_ENDPOINT", value)
    assert models.hub._url(model_file(BODY)).startswith(f"{start}{REPO}/resolve/")
