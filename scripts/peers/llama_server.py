"""llama.cpp's llama-server: one process with one slot, asked over HTTP on this machine."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from scripts.peers.contenders import Answer, Contender, PeerFailed, Setting, Task, digest, rate

LOAD_SECONDS, REPLY_SECONDS = 300.0, 1800.0


class LlamaServer:
    """Loads when made. Prompt caches are off: every reply starts cold, as ours do."""

    def __init__(self, binary: Path, contender: Contender, setting: Setting) -> None:
        """Raises PeerFailed."""
        self._port = _free_port()
        self.command = [
            str(binary), "-m", str(setting.target), "-c", str(setting.context), "-t", str(setting.threads), "-np", "1",
            "--host", "127.0.0.1", "--port", str(self._port), "--no-ui", "--no-cache-prompt", "-cram", "0", *contender.options,
        ]
        if contender.uses_draft:
            self.command += ["-md", str(setting.draft)]
        self._log = (setting.logs / f"{contender.name.replace(' ', '_')}.log").open("wb")
        self._process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT)
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def reply(self, task: Task) -> Answer:
        body = {
            "prompt": task.prompt, "n_predict": task.max_tokens, "temperature": task.temperature, "top_k": 40, "top_p": 0.95,
            "min_p": 0.05, "seed": task.seed, "cache_prompt": False, "stream": False,
        }
        answer = self._ask("POST", "/completion", body, REPLY_SECONDS)
        timings = answer["timings"]
        if timings["cache_n"]:
            raise PeerFailed(f"llama-server took {timings['cache_n']} prompt tokens from a cache although it was told not to")
        return Answer(
            prompt_tokens=timings["prompt_n"], completion_tokens=timings["predicted_n"],
            tokens_per_second=rate(timings["predicted_n"], timings["predicted_ms"] / 1000), ttft_ms=timings["prompt_ms"],
            drafted=timings.get("draft_n", 0), accepted=timings.get("draft_n_accepted", 0), text_sha256=digest(answer["content"]),
        )

    def rendered(self, question: str) -> str:
        """The prompt as the model's own chat template writes it."""
        answer = self._ask("POST", "/apply-template", {"messages": [{"role": "user", "content": question}]}, 60.0)
        return str(answer["prompt"])

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(15)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + LOAD_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise PeerFailed(f"llama-server ended with exit code {self._process.returncode}; see {self._log.name}")
            try:
                self._ask("GET", "/health", None, 5.0)
                return
            except (PeerFailed, OSError):
                time.sleep(0.2)
        raise PeerFailed(f"llama-server was not ready after {LOAD_SECONDS:.0f} s; see {self._log.name}")

    def _ask(self, method: str, path: str, body: Any, seconds: float) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=seconds)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            response = connection.getresponse()
            data = response.read()
            if response.status != 200:
                raise PeerFailed(f"llama-server answered {response.status}: {data[:200].decode(errors='replace')}")
            return json.loads(data)
        except (OSError, http.client.HTTPException) as error:
            if self._process.poll() is not None:
                raise PeerFailed(f"llama-server ended with exit code {self._process.returncode}; see {self._log.name}") from None
            raise PeerFailed(f"llama-server does not answer: {error}") from None
        finally:
            connection.close()


def version(binary: Path) -> str:
    """Its first line about itself. Raises PeerFailed."""
    try:
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        raise PeerFailed(f"{binary} cannot be started: {error.strerror}") from None
    return next(iter((done.stdout + done.stderr).strip().splitlines()), "unknown")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
