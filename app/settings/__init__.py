"""What the user can set, and where it is kept: settings.toml and presets.toml in the configuration folder.

Both are plain TOML, made to be edited by hand and handed on; a mistake is told with its file, line and field.
"""

from app.settings.files import SettingsError, describe, load_settings, save_settings
from app.settings.presets import built_in_presets, load_presets, own_presets, save_presets
from app.settings.values import ChatSettings, LoadSettings, OnContextFull, Preset, Settings

__all__ = [
    "ChatSettings",
    "LoadSettings",
    "OnContextFull",
    "Preset",
    "Settings",
    "SettingsError",
    "built_in_presets",
    "describe",
    "load_presets",
    "load_settings",
    "own_presets",
    "save_presets",
    "save_settings",
]
