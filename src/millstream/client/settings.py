"""What both configurations share: unknown names are refused, and every field has its property of librdkafka."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar

from millstream.client.errors import ConfigurationError
from millstream.config.errors import nearest

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
    """librdkafka's properties for the fields that are set, and what `extra` adds to them.

    `names` maps fields to properties, `own` further properties to the field that decides them. `extra` may have none
    of these, so that there is one place to look for each.
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
    """Bootstrap servers as librdkafka wants them."""
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
