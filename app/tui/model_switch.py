"""Choosing models from within the app: opens the models screen, keeps what was chosen, and has it loaded."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from app.chat.model_choice import nothing_here, with_choice
from app.options import LoadChoices
from app.settings import SettingsError, save_settings
from app.tui.keys import shown_key
from app.tui.screens.models import ModelsScreen

if TYPE_CHECKING:
    from app.tui.app import PacelineApp


def choose_models(app: PacelineApp, wanted: str = "") -> None:
    """Open the models screen, with `wanted` highlighted, unless it is open."""
    if app.session.replying:
        app.notify("a reply is being written; Esc stops it", severity="warning", markup=False)
    elif not any(isinstance(screen, ModelsScreen) for screen in app.screen_stack):
        first, loaded = nothing_here(app.paths, app.choices), app.host.state == "ready"
        screen = ModelsScreen(app.paths, app.choices, wanted=wanted, loaded=loaded, first=first)
        app.push_screen(screen, partial(_take, app))


def _take(app: PacelineApp, choices: LoadChoices | None) -> None:
    """Load what was chosen, now and at the next start."""
    if choices is None:
        activity = app.chat_screen.activity
        if app.host.state == "empty" and not activity.text:
            activity.problem(f"no model is loaded · {shown_key(app, 'models') or '/model'} chooses one")
        return
    chosen = with_choice(app.settings, choices)
    try:
        save_settings(app.paths, chosen, app.settings)
    except SettingsError as error:
        app.notify(str(error), severity="warning", markup=False)
    app.settings, app.choices = chosen, choices
    app.host.load(choices)
