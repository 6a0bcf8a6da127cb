"""Shared parts of both configurations: their enumerations, the refusal of unknown names, and the mapping of fields to
librdkafka's properties."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum, StrEnum
from typing import Any, Self, TypeVar

from millstream.client.errors import ConfigurationError
from millstream.config.errors import nearest


class AckMode(IntEnum):
    """When a send counts as done. The values are those of Kafka's acks, and so are the names in a configuration.

    >>> AckMode.of("all") is AckMode.ALL
    True
    """

    NONE = 0
    """At once. A message can be lost without notice, and its offset stays unknown (-1)."""
    LEADER = 1
    """When the partition's leader has stored the message."""
    ALL = -1
    """When all replicas in sync have stored the message."""

    @classmethod
    def of(cls, value: Any) -> Self:
        """The mode that a setting names: an AckMode, "all", or one of Kafka's numbers 0, 1 and -1."""
        try:
            return cls(-1 if value == "all" else int(value))
        except (TypeError, ValueError):
            raise ConfigurationError(f'acks is {value!r}; choose "all", 1 or 0, or an AckMode') from None


class OffsetResetPolicy(StrEnum):
    """Where reading starts when the group has no offset, or one that does not exist any more.

    >>> OffsetResetPolicy("earliest") is OffsetResetPolicy.EARLIEST
    True
    """

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    """Nowhere: `poll` raises OffsetOutOfRangeError."""


_Config = TypeVar("_Config")


def names_checked(config: type[_Config]) -> type[_Config]:
    """A class decorator over `dataclass`: a misspelt setting raises ConfigurationError with the nearest name."""
    names = [field.name for field in dataclasses.fields(config)]  # type: ignore[arg-type]
    original = config.__init__

    @functools.wraps(original)
    def checked(self: _Config, *values: Any, **settings: Any) -> None:
        for name in settings:
            if name not in names:
                hint = (
                    nearest(name.replace(".", "_"), names)
                    or "; a property of librdkafka goes into extra={...}"
                )
                raise ConfigurationError(f"{config.__name__} has no setting {name!r}{hint}")
        original(self, *values, **settings)

    config.__init__ = checked  # type: ignore[method-assign, assignment]
    return config


def to_properties(config: object, names: Mapping[str, str], own: Mapping[str, str]) -> dict[str, Any]:
    """librdkafka's properties for the fields that are set, and those that `extra` adds.

    `names` maps fields to properties, and `own` maps further properties to the fields that decide them. `extra` may
    contain none of these, so that each is set in one place.
    """
    properties: dict[str, Any] = {}
    for field, name in names.items():
        value = getattr(config, field)
        if value is not None:
            properties[name] = value.value if isinstance(value, Enum) else value
    field_of = {**own, **{name: field for field, name in names.items()}}
    for name, value in getattr(config, "extra").items():  # noqa: B009 - both configurations have it
        if name in field_of:
            raise ConfigurationError(f"extra names {name!r}; set {field_of[name]} instead")
        properties[name] = value
    return properties


def servers(value: str | Iterable[str]) -> str:
    """Bootstrap servers in librdkafka's form."""
    addresses = value.split(",") if isinstance(value, str) else list(value)
    cleaned = [address.strip() for address in addresses]
    if not cleaned or not all(cleaned):
        raise ConfigurationError(
            "bootstrap_servers is empty; give at least one address, such as ['localhost:9092']"
        )
    return ",".join(cleaned)


def at_least(config: object, minimum: int, *fields: str) -> None:
    """Refuse numbers below `minimum`; None is a setting left to its default."""
    for field in fields:
        value = getattr(config, field)
        if value is not None and value < minimum:
            raise ConfigurationError(f"{field} is {value}; it must be at least {minimum}")


def one_of(config: object, field: str, choices: Iterable[str]) -> None:
    value = getattr(config, field)
    allowed = list(choices)
    if value is not None and value not in allowed:
        raise ConfigurationError(f"{field} is {value!r}; choose one of {', '.join(allowed)}")
