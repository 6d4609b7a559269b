"""The engine's error tree: one class for each decision a caller can make.

A message says what happened and what to do, in one line fit for a user.
"""


class EngineError(Exception):
    """Base of everything the engine raises on purpose."""


class LoadFailed(EngineError):
    """A model or context could not be created (bad file, no memory, unknown architecture)."""


class LoadCancelled(EngineError):
    """The caller's progress callback asked to stop loading."""


class DecodeFailed(EngineError):
    """llama.cpp refused or failed a decode; the session was rolled back to its last good state."""


class NoCacheSlot(DecodeFailed):
    """llama_decode returned 1: no room in the KV cache for the batch."""


class DecodeAborted(EngineError):
    """llama_decode returned 2: the cancel flag was up. Not a fault."""


class ContextFull(EngineError):
    """The prompt does not fit in the context even after old turns were dropped."""


class IncompatibleDraft(EngineError):
    """The draft model cannot draft for this target: other token texts, or no way to take tokens back."""


class BadRequest(EngineError):
    """A setting is out of range, or a grammar or JSON schema does not parse."""


class NothingAllowed(BadRequest):
    """Grammar and logit bias together forbid every token at this place of the reply."""


class TemplateFailed(EngineError):
    """The model's chat template could not be rendered."""


class EngineDied(EngineError):
    """The engine's process ended, ran out of memory or stopped answering."""


class StateNotSaved(EngineError):
    """A chat's caches could not be written to disk; the file that was there before is untouched."""


class WorkCancelled(EngineError):
    """The caller asked to stop work in a child process; the process is gone and nothing was left behind."""


class QuantizeFailed(EngineError):
    """llama.cpp could not write the quantised file."""
