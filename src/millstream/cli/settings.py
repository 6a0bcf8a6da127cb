"""Loads the node's settings for commands, with plain errors, and lists them as rows."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from millstream.cli.errors import CommandError
from millstream.config.errors import ConfigError
from millstream.config.kinds import to_text
from millstream.config.load import load_settings
from millstream.config.setting import Setting, settings_of
from millstream.config.settings import SECTIONS, Settings

# Variables of the command line that look like settings of a node.
COMMAND_VARIABLES = {"MILLSTREAM_BOOTSTRAP", "MILLSTREAM_DEBUG", "MILLSTREAM_PROFILE"}


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting: its key in the file, its value or default as one would write it, and its meaning."""

    name: str
    value: str | None
    default: str | None
    kafka_name: str | None
    meaning: str

    @property
    def is_changed(self) -> bool:
        return self.value != self.default

    @property
    def variable(self) -> str:
        return "MILLSTREAM_" + self.name.replace(".", "_").upper()


def settings_for(file: Path | None, flags: Mapping[str, object]) -> Settings:
    environ = {name: value for name, value in os.environ.items() if name not in COMMAND_VARIABLES}
    try:
        return load_settings(file, environ, flags)
    except ConfigError as error:
        raise CommandError(str(error)) from error


def setting_rows(settings: Settings) -> list[SettingRow]:
    """Every setting of every section, with the value it has in `settings`."""
    rows = []
    for section, kind in SECTIONS.items():
        defaults, values = kind(), getattr(settings, section)
        for key, setting in settings_of(kind).items():
            value, default = getattr(values, key), getattr(defaults, key)
            rows.append(
                SettingRow(
                    name=f"{section}.{key}",
                    value=_shown(setting, value),
                    default=_shown(setting, default),
                    kafka_name=setting.kafka_name,
                    meaning=setting.definition.documentation,
                )
            )
    return rows


def _shown(setting: Setting, value: object) -> str | None:
    if value is None:
        return None
    return "(hidden)" if setting.definition.sensitive else setting.spelling.write(to_text(value))
