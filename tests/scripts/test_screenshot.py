"""The README's picture is made by the real app and loads nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.options import LoadChoices
from app.settings import ChatSettings
from scripts.screenshot import picture


async def test_the_picture_shows_a_reply_and_its_pace_and_loads_nothing(
    target: Path, draft: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    choices = LoadChoices(target=str(target), draft=str(draft), threads=1)
    svg = await picture(choices, "What is a merge?", "dark", ChatSettings(temperature=0.0, max_tokens=30))
    assert "@font-face" not in svg
    assert "url(\"http" not in svg
    for shown in ("What&#160;is&#160;a&#160;merge?", "Kept&#160;by&#160;position", "30&#160;tokens"):
        assert shown in svg
