from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from app.settings import ChatSettings, Preset
from engine import BadRequest, GenerationRequest, SamplingParams


def test_only_what_was_said_is_passed_on() -> None:
    settings = ChatSettings(system="Hi", temperature=0, top_k=0, seed=3, stop=("END",), mode="plain")
    assert settings.sampling() == {"temperature": 0, "top_k": 0}
    assert settings.request() == {"seed": 3, "mode": "plain", "stop": ("END",)}
    assert ChatSettings().sampling() == ChatSettings().request() == {}


def test_the_engine_takes_what_is_passed_on() -> None:
    settings = ChatSettings(
        temperature=1, top_k=3, top_p=0.5, min_p=0.1, repeat_penalty=1.1, max_tokens=7, seed=3, mode="auto", stop=("a",)
    )
    request = GenerationRequest(sampling=SamplingParams(**settings.sampling()), **settings.request())
    assert (request.sampling.top_k, request.max_tokens) == (3, 7)


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", -0.1), ("temperature", 101), ("top_k", -1), ("top_p", 0), ("top_p", 1.1), ("min_p", -0.1),
     ("min_p", 1.1), ("repeat_penalty", 0), ("repeat_penalty", 11)],
)
def test_limits_are_the_engines(name: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        ChatSettings.model_validate({name: value})
    with pytest.raises(BadRequest):
        SamplingParams(**{name: value})


@pytest.mark.parametrize(("name", "value"), [("temperature", 0), ("temperature", 100), ("top_k", 0), ("top_p", 1),
                                         ("min_p", 0), ("min_p", 1), ("repeat_penalty", 10)])
def test_what_the_engine_takes_can_be_set(name: str, value: Any) -> None:
    SamplingParams(**ChatSettings.model_validate({name: value}).sampling())


def test_settings_outlive_json() -> None:
    settings = ChatSettings(system="x", stop=("a", "b"), temperature=0.5)
    assert ChatSettings.model_validate_json(settings.model_dump_json()) == settings


def test_a_preset_replaces_everything() -> None:
    preset = Preset(name="Code", system="Write code.", temperature=0.2)
    assert preset.applied() == ChatSettings(preset="Code", system="Write code.", temperature=0.2)


def test_a_chat_becomes_a_preset_and_comes_back() -> None:
    settings = ChatSettings(system="Hi", top_k=5, stop=("x",))
    assert Preset.of("Mine", settings).applied() == settings.model_copy(update={"preset": "Mine"})


@pytest.mark.parametrize("name", ["", " a", "a\nb", "a\x1b[0m", "x" * 61])
def test_names_that_cannot_be_shown_are_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        Preset(name=name)
