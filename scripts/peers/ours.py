"""Paceline in a process of its own, as its chat runs it."""

from __future__ import annotations

from engine import EngineError, EngineProcess, Finished, GenerationRequest, LoadConfig, SamplingParams
from scripts.peers.contenders import Answer, Contender, PeerFailed, Setting, Task, digest


class Ours:
    """A loaded engine in one mode. Plain decoding has the target alone in memory."""

    def __init__(self, contender: Contender, setting: Setting) -> None:
        """Raises PeerFailed."""
        self._mode = contender.options[0]
        try:
            self._engine = EngineProcess(LoadConfig(
                target=setting.target, draft=setting.draft if contender.uses_draft else None, context=setting.context,
                threads=setting.threads, log_file=setting.logs / "paceline.log", profile_dir=setting.logs,
            ))
        except EngineError as error:
            raise PeerFailed(f"paceline: {error}") from None

    @property
    def pid(self) -> int | None:
        return self._engine.pid

    def reply(self, task: Task) -> Answer:
        request = GenerationRequest(
            prompt=task.prompt, sampling=SamplingParams(temperature=task.temperature), max_tokens=task.max_tokens, mode=self._mode
        )
        try:
            self._engine.forget()
            report, text = next(
                (event.report, event.text) for event in self._engine.generate(request) if isinstance(event, Finished)
            )
        except EngineError as error:
            raise PeerFailed(f"paceline: {error}") from None
        timings, speculation = report["timings"], report["speculation"]
        return Answer(
            report["usage"]["prompt_tokens"], report["usage"]["completion_tokens"], timings["decode_tps"] or None, timings["ttft_ms"],
            speculation["drafted"], speculation["accepted"], digest(text),
        )

    def close(self) -> None:
        self._engine.close()
