"""llama-cpp-python's LlamaPromptLookupDecoding, in a process of its own: tokens in, tokens out, nothing around it."""

from __future__ import annotations

import multiprocessing
import os
import time
from typing import Any

from scripts.peers.contenders import Answer, PeerFailed, Setting, Task, digest, rate

LOAD_SECONDS, REPLY_SECONDS = 300.0, 1800.0


class LookupProcess:
    """One loaded model for any number of tokens to predict."""

    def __init__(self, setting: Setting) -> None:
        """Raises PeerFailed."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, setting), daemon=True)
        self._process.start()
        theirs.close()
        self._receive(LOAD_SECONDS)

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def ask(self, task: Task, predict: int) -> Answer:
        try:
            self._connection.send((task, predict))
        except OSError:  # closed for the other number's failure, say
            raise PeerFailed("llama-cpp-python is not running any more") from None
        answer: Answer = self._receive(REPLY_SECONDS)
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()

    def _receive(self, seconds: float) -> Any:
        if not self._connection.poll(seconds):
            self.close()
            raise PeerFailed("llama-cpp-python does not answer")
        try:
            value = self._connection.recv()
        except EOFError:
            self._process.join()
            raise PeerFailed(f"llama-cpp-python ended with exit code {self._process.exitcode}") from None
        if isinstance(value, str):
            raise PeerFailed(f"llama-cpp-python: {value}")
        return value


class Lookup:
    """A LookupProcess with a number of tokens to predict."""

    def __init__(self, process: LookupProcess, predict: int) -> None:
        self._process, self._predict = process, predict

    def reply(self, task: Task) -> Answer:
        return self._process.ask(task, self._predict)

    def close(self) -> None:
        self._process.close()


def _serve(connection: Any, setting: Setting) -> None:
    log = os.open(setting.logs / "llama-cpp-python.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    from llama_cpp import Llama
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    class Counting(LlamaPromptLookupDecoding):
        """Counts what it proposed."""

        drafted = 0

        def __call__(self, input_ids: Any, /, **kwargs: Any) -> Any:
            found = super().__call__(input_ids, **kwargs)
            self.drafted += len(found)
            return found

    try:
        model = Llama(
            str(setting.target), n_ctx=setting.context, n_threads=setting.threads, n_threads_batch=setting.threads, verbose=False,
            draft_model=Counting(), logits_all=True,  # without it drafting fails beyond the first batch of the context
        )
    except (ValueError, RuntimeError, OSError) as error:
        connection.send(str(error))
        return
    connection.send(True)
    while True:
        try:
            task, predict = connection.recv()
        except EOFError:
            return
        try:
            connection.send(_reply(model, Counting(num_pred_tokens=predict), task))
        except (ValueError, RuntimeError) as error:
            connection.send(f"{type(error).__name__}: {error}")


def _reply(model: Any, drafter: Any, task: Task) -> Answer:
    tokens = model.tokenize(task.prompt.encode(), add_bos=True, special=True)
    model.reset()
    model.set_seed(task.seed)
    model.draft_model = drafter
    evals, found, first = 0, [], 0.0
    plain_eval = model.eval

    def counted(batch: Any) -> Any:
        nonlocal evals
        evals += 1
        return plain_eval(batch)

    model.eval = counted
    started = time.perf_counter()
    end = started
    try:
        for token in model.generate(tokens, top_k=40, top_p=0.95, min_p=0.05, temp=task.temperature, repeat_penalty=1.0):
            end = time.perf_counter()
            first = first or end
            found.append(token)
            if token == model.token_eos() or len(found) >= task.max_tokens:
                break
    finally:
        model.eval = plain_eval
    text = model.detokenize([t for t in found if t != model.token_eos()]).decode("utf-8", errors="replace")
    return Answer(
        len(tokens), len(found), rate(len(found), end - first), (first - started) * 1000, drafter.drafted, max(0, len(found) - evals),
        digest(text),
    )
