"""What a Kafka-named setting is: its type, its bounds, and how its text is read and written."""

import re
from enum import IntEnum

import msgspec

from millstream.config.errors import ConfigError

ConfigValue = bool | int | float | str | frozenset[str]


class ConfigType(IntEnum):
    """The codes DescribeConfigs uses."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


_NUMBER_BOUNDS = {ConfigType.INT: 2**31 - 1, ConfigType.LONG: 2**63 - 1}


class Synonym(msgspec.Struct, frozen=True):
    """A broker setting that is a topic setting's default; `factor` turns its unit into the topic's."""

    name: str
    factor: int = 1


class ConfigDefinition(msgspec.Struct, frozen=True):
    """One setting. `default` is its text, None when it has none; `synonyms` are the strongest first."""

    name: str
    type: ConfigType
    default: str | None
    documentation: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    dynamic: bool = True
    sensitive: bool = False
    synonyms: tuple[Synonym, ...] = ()
    # For a list that may be empty: a pattern for its items, and its description.
    item_pattern: str = ""
    item_words: str = ""
    # Values that a user may expect, with the reason why they are refused.
    refused: dict[str, str] = {}
    may_be_empty: bool = False

    @property
    def field(self) -> str:
        return self.name.replace(".", "_")

    def parse(self, text: str) -> ConfigValue:
        """The typed value, or ConfigError."""
        text = text.strip()
        match self.type:
            case ConfigType.BOOLEAN:
                return self._boolean(text)
            case ConfigType.STRING:
                if not text and not self.may_be_empty:
                    raise self._refuse(text, "it must not be empty")
                self._check_choice(text)
                return text
            case ConfigType.LIST:
                return self._list(text)
            case _:
                return self._number(text)

    def accepts(self) -> str:
        """The valid values in words, for error messages and the manual."""
        if self.choices:
            several = ", or several separated by commas" if self.type is ConfigType.LIST else ""
            return ", ".join(self.choices) + several
        if self.type is ConfigType.LIST:
            return self.item_words or "a list"
        if self.type is ConfigType.BOOLEAN:
            return "true or false"
        if self.minimum is None and self.maximum is None:
            return "any text" if self.type is ConfigType.STRING else "any number"
        if self.maximum is None:
            return f"{self.minimum:g} or more"
        return f"{self.minimum:g} to {self.maximum:g}"

    def _boolean(self, text: str) -> bool:
        value = {"true": True, "false": False}.get(text.lower())
        if value is None:
            raise self._refuse(text, "write true or false")
        self._check_choice(text.lower())
        return value

    def _list(self, text: str) -> frozenset[str]:
        if self.item_pattern and not text:
            return frozenset()
        items = [item.strip() for item in text.split(",")]
        for item in items:
            self._check_choice(item)
            if self.item_pattern and not re.fullmatch(self.item_pattern, item):
                raise self._refuse(text, f"write {self.item_words}")
        return frozenset(items)

    def _number(self, text: str) -> int | float:
        try:
            value = float(text) if self.type is ConfigType.DOUBLE else int(text)
        except ValueError:
            unit = _unit_of(self.name)
            raise self._refuse(text, f"write a plain number{unit}, {self.accepts()}") from None
        maximum = self.maximum if self.maximum is not None else _NUMBER_BOUNDS.get(self.type)
        too_small = self.minimum is not None and not value >= self.minimum
        if too_small or (maximum is not None and not value <= maximum):
            wanted = self.accepts() if too_small or self.maximum is not None else f"at most {maximum}"
            raise self._refuse(text, f"it must be {wanted}")
        return value

    def _check_choice(self, text: str) -> None:
        if (reason := self.refused.get(text)) is not None:
            raise ConfigError(self.name, f"{text!r} is refused: {reason}")
        if self.choices and text not in self.choices:
            raise self._refuse(text, f"use {self.accepts()}")

    def _refuse(self, text: str, advice: str) -> ConfigError:
        return ConfigError(self.name, f"{text!r} is not a valid value; {advice}")


def to_text(value: object) -> str:
    """A value as Kafka writes it: `true`, `604800000`, `compact,delete`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, frozenset | list | tuple):
        return ",".join(sorted(map(str, value)))
    return str(value)


def _unit_of(name: str) -> str:
    units = {"ms": " of milliseconds", "bytes": " of bytes", "hours": " of hours", "minutes": " of minutes"}
    return units.get(name.rsplit(".", 1)[-1], "")
