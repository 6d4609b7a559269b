"""Lossless speculative decoding of a GGUF pair. Import from here; llama.cpp is loaded at the first Engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.errors import (
    BadRequest,
    ContextFull,
    DecodeFailed,
    EngineDied,
    EngineError,
    LoadCancelled,
    LoadFailed,
    StateNotSaved,
    TemplateFailed,
)
from engine.sampling import SamplingParams
from engine.values import (
    ChatMessage,
    Finished,
    GenerationEvent,
    GenerationRequest,
    LoadConfig,
    LoadProgress,
    Notice,
    PrefillProgress,
    RoundDone,
    TextDelta,
    Written,
)

if TYPE_CHECKING:
    from engine.engine import Engine
    from engine.process import EngineProcess

__all__ = [
    "BadRequest", "ChatMessage", "ContextFull", "DecodeFailed", "Engine", "EngineDied", "EngineError",
    "EngineProcess", "Finished", "GenerationEvent", "GenerationRequest", "LoadCancelled", "LoadConfig", "LoadFailed",
    "LoadProgress", "Notice", "PrefillProgress", "RoundDone", "SamplingParams", "StateNotSaved", "TemplateFailed", "TextDelta",
    "Written",
]


def __getattr__(name: str) -> Any:
    """Engine and EngineProcess on first use: they import llama.cpp, which takes a third of a second."""
    if name == "Engine":
        from engine.engine import Engine

        return Engine
    if name == "EngineProcess":
        from engine.process import EngineProcess

        return EngineProcess
    raise AttributeError(f"module 'engine' has no attribute {name!r}")
