"""One key of the settings file: how its value is spelled, and Kafka's setting behind it if there is one."""

from dataclasses import Field, dataclass, field, fields
from enum import Enum
from typing import Any

from msgspec.structs import replace

from millstream.config.broker_table import BROKER_CONFIGS
from millstream.config.errors import ConfigError
from millstream.config.kinds import ConfigDefinition, ConfigType, ConfigValue, to_text
from millstream.config.units import format_duration_ms, format_size, parse_duration_ms, parse_size


class Spelling(Enum):
    """How a value is written in the file."""

    PLAIN = "plain"
    SIZE = "size"
    DURATION = "duration"

    def read(self, value: object) -> str:
        """The text Kafka would write: plain numbers of bytes and milliseconds. Raises ValueError."""
        match self:
            case Spelling.SIZE:
                return str(parse_size(value))
            case Spelling.DURATION:
                return str(parse_duration_ms(value))
        if not isinstance(value, str | int | float | list | tuple):
            raise ValueError(f"{value!r} is not a single value")
        return to_text(value)

    def write(self, text: str) -> str:
        """The reverse of `read`, as short as it is exact."""
        match self:
            case Spelling.SIZE:
                return format_size(int(text))
            case Spelling.DURATION:
                return format_duration_ms(int(text))
        return text


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known about a key; `kafka_name` is None for settings Kafka does not have."""

    definition: ConfigDefinition
    spelling: Spelling
    kafka_name: str | None

    def read(self, name: str, value: object, where: str) -> str:
        """The checked text of a user's value, or a ConfigError with the name and place the user knows."""
        try:
            text = self.spelling.read(value)
            self.definition.parse(text)
        except ConfigError as error:
            raise error.at(where, name) from None
        except ValueError as error:
            raise ConfigError(name, str(error), where) from None
        return text

    def value(self, text: str) -> Any:
        parsed = self.definition.parse(text)
        return tuple(text.split(",")) if isinstance(parsed, frozenset) else parsed


def kafka_setting(
    name: str, spelling: Spelling = Spelling.PLAIN, *, documentation: str = "", unset: bool = False
) -> Any:
    """A field that is Kafka's broker setting `name` with its default, or with None when `unset`."""
    definition = BROKER_CONFIGS[name]
    if unset:
        definition = replace(definition, default=None)
    if documentation:
        definition = replace(definition, documentation=documentation)
    default = None if definition.default is None else definition.parse(definition.default)
    return field(default=default, metadata={"setting": Setting(definition, spelling, name)})


def own_setting(
    default: ConfigValue | tuple[str, ...] | None,
    documentation: str,
    *,
    kind: ConfigType = ConfigType.STRING,
    spelling: Spelling = Spelling.PLAIN,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    sensitive: bool = False,
) -> Any:
    """A field for a setting Kafka does not have; a `sensitive` one is never shown."""
    text = None if default is None else to_text(default)
    definition = ConfigDefinition(
        "", kind, text, documentation,
        minimum=minimum, maximum=maximum, choices=choices, dynamic=False, sensitive=sensitive,
    )  # fmt: skip
    return field(default=default, metadata={"setting": Setting(definition, spelling, None)})


def setting_of(dataclass_field: Field[Any]) -> Setting:
    setting = dataclass_field.metadata["setting"]
    if not isinstance(setting, Setting):
        raise TypeError(f"{dataclass_field.name} is not a setting")
    return setting


def settings_of(section: type) -> dict[str, Setting]:
    """The keys of one section, in the order they are declared."""
    return {each.name: setting_of(each) for each in fields(section)}
