"""What a user can set: frozen values, checked when they are made. No files and no widgets.

Two layers: `ChatSettings` belong to one chat (what is asked of the model), `Settings` to the program. None always
means "not said": the engine's or the model's own default holds, and is written down in one place only.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from app.options import MODES

OnContextFull = Literal["drop", "stop", "summarise"]
Count = Annotated[int, Field(ge=1)]

SAMPLING_FIELDS = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty")
"""Named and meant as in the engine's SamplingParams, whose limits the fields below repeat (a test compares them)."""
REQUEST_FIELDS = ("max_tokens", "seed", "mode", "stop")
"""Named as in the engine's GenerationRequest."""


class _Values(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Wishes(_Values):
    """What is asked of the model: by a chat, or by a preset."""

    system: str | None = None
    """The system prompt."""
    temperature: float | None = Field(default=None, ge=0, le=100)
    top_k: int | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    repeat_penalty: float | None = Field(default=None, ge=0.01, le=10)
    max_tokens: Count | None = None
    """Longest reply in tokens."""
    seed: int | None = Field(default=None, ge=0)
    mode: str | None = None
    """How drafts are made: auto, plain, ngram, draft or fixed:K."""
    stop: tuple[str, ...] = ()
    """Texts that end a reply; they are not part of it."""

    @field_validator("mode")
    @classmethod
    def _mode_is_known(cls, value: str | None) -> str | None:
        if value is not None and not MODES.fullmatch(value):
            raise ValueError("must be auto, plain, ngram, draft or fixed:K with K from 1 to 63")
        return value

    @field_validator("stop")
    @classmethod
    def _stop_is_text(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "" in value:
            raise ValueError("must hold no empty text, which would end every reply at once")
        return value

    def sampling(self) -> dict[str, Any]:
        """The sampling settings that were said, as arguments for the engine's SamplingParams."""
        return self._said(SAMPLING_FIELDS)

    def request(self) -> dict[str, Any]:
        """Length, seed, mode and stop texts that were said, as arguments for the engine's GenerationRequest."""
        return self._said(REQUEST_FIELDS)

    def _said(self, names: tuple[str, ...]) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None and value != ()}


class ChatSettings(Wishes):
    """The settings of one chat."""

    preset: str | None = None
    """Name of the preset they were taken from."""


class Preset(Wishes):
    """A named system prompt with sampling settings."""

    name: str = Field(min_length=1, max_length=60)
    description: str = ""

    @field_validator("name")
    @classmethod
    def _name_is_one_line(cls, value: str) -> str:
        if not value.isprintable() or value != value.strip():
            raise ValueError("must be one line without spaces at its ends")
        return value

    def applied(self) -> ChatSettings:
        """The settings of a chat that uses this preset: nothing of an earlier one is left."""
        return ChatSettings(preset=self.name, **self.model_dump(exclude={"name", "description"}))

    @classmethod
    def of(cls, name: str, settings: ChatSettings, description: str = "") -> Preset:
        """A preset from a chat's settings. Raises ValueError (pydantic's) for a name that cannot be one."""
        return cls(name=name, description=description, **settings.model_dump(exclude={"preset"}))


class LoadSettings(_Values):
    """Which models to load when the command line does not say."""

    target: str | None = None
    """A path, a name from `models pairs`, or hf:owner/repo/file.gguf."""
    draft: str | None = None
    """The same; `none` for no draft model."""
    ctx: Count | None = None
    """Context size in tokens."""


class Settings(_Values):
    """The program's settings, as config/settings.toml holds them."""

    theme: str = "dark"
    show_pace: bool = True
    """The pace panel is open."""
    colour_origins: bool = False
    """Replies are coloured by who proposed each token."""
    auto_title: bool = True
    """The model names a chat after its first reply."""
    on_context_full: OnContextFull = "drop"
    """What happens when a chat outgrows the context: the oldest turns are left out, the reply stops, or the oldest turns
    are summarised."""
    shadow_rate: float = Field(default=0.0, ge=0, le=1)
    """Share of replies that are checked against plain decoding in idle time."""
    kv_state_budget_mb: int = Field(default=2048, ge=0)
    """MiB of disk for what models have read of saved chats; 0 keeps none."""
    chat: ChatSettings = ChatSettings()
    """What a new chat starts with."""
    load: LoadSettings = LoadSettings()
    keys: dict[str, str] = {}
    """The user's own keys: id of a binding to keys, as in `quit = "ctrl+q"`; see the help screen for the ids."""
