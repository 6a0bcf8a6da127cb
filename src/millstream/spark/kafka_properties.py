"""Options that begin with `kafka.`: uses, refuses, or ignores them, and turns them into settings."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from millstream.client.errors import ConfigurationError
from millstream.client.wire import properties as wire
from millstream.client.wire.settings import ClusterSettings
from millstream.spark.errors import OptionError

log = logging.getLogger("millstream.spark")

Given = TypeVar("Given")
Made = TypeVar("Made")

PREFIX = "kafka."
# Spark's Kafka source refuses these too: the source decides them itself.
_REFUSED = {
    "auto.offset.reset": "use the option startingOffsets",
    "enable.auto.commit": "offsets are kept in the checkpoint; commitOffsets shows them in a group",
    "interceptor.classes": "records are not handed to interceptors",
    "key.deserializer": "keys are read as bytes; cast or parse them in the query",
    "value.deserializer": "values are read as bytes; cast or parse them in the query",
    "key.serializer": "keys are written as the bytes of the column",
    "value.serializer": "values are written as the bytes of the column",
}
_READ = frozenset(
    {
        "bootstrap.servers", "client.id", "group.id", "isolation.level", "check.crcs",
        "max.partition.fetch.bytes", "fetch.max.wait.ms", "fetch.min.bytes", "request.timeout.ms",
        "default.api.timeout.ms", "retry.backoff.ms", "receive.buffer.bytes",
    }
)  # fmt: skip
_SECURITY = ("security.", "ssl.", "sasl.")


def kafka_properties(options: Mapping[str, str]) -> dict[str, str]:
    """The `kafka.` options without their prefix. Names are in lower case, as Spark passes them."""
    found = {
        name[len(PREFIX) :].lower(): value
        for name, value in options.items()
        if name.lower().startswith(PREFIX)
    }
    for name, reason in _REFUSED.items():
        if name in found:
            raise OptionError(f"option {PREFIX}{name} is not supported: {reason}")
    if not found.get("bootstrap.servers", "").strip():
        raise OptionError(
            "option kafka.bootstrap.servers is missing; set it to the brokers' addresses, such as localhost:9092"
        )
    return found


def cluster_settings(properties: Mapping[str, str]) -> ClusterSettings:
    """The properties that a reader needs. Properties without meaning here are logged once."""
    ignored = sorted(name for name in properties if name not in _READ and not name.startswith(_SECURITY))
    if ignored:
        names = ", ".join(PREFIX + name for name in ignored)
        log.warning("no effect on format('millstream') when reading: %s", names)
    defaults = ClusterSettings(bootstrap=())
    request_timeout_s = whole_number(properties, "request.timeout.ms", 30_000, least=1) / 1000
    return ClusterSettings(
        bootstrap=_made(wire.addresses, properties["bootstrap.servers"], "bootstrap.servers: "),
        security=_made(wire.security_of, properties),
        client_id=properties.get("client.id", "millstream-spark"),
        waits_for_topics=True,
        connect_timeout_s=request_timeout_s,
        first_reply_timeout_s=request_timeout_s,
        read_committed=_choice(properties, "isolation.level", ("read_uncommitted", "read_committed")) == 1,
        check_crcs=_choice(properties, "check.crcs", ("true", "false")) == 0,
        fetch_bytes=whole_number(properties, "max.partition.fetch.bytes", defaults.fetch_bytes, least=1),
        fetch_max_wait_ms=whole_number(properties, "fetch.max.wait.ms", defaults.fetch_max_wait_ms),
        fetch_min_bytes=whole_number(properties, "fetch.min.bytes", defaults.fetch_min_bytes),
        request_timeout_s=request_timeout_s,
        api_timeout_s=whole_number(properties, "default.api.timeout.ms", 60_000) / 1000,
        retry_backoff_s=whole_number(properties, "retry.backoff.ms", 100, least=1) / 1000,
        receive_buffer_bytes=whole_number(properties, "receive.buffer.bytes", 0, least=-1),
    )


def librdkafka_security(properties: Mapping[str, str]) -> dict[str, Any]:
    return _made(wire.librdkafka_security, properties)


def _made(make: "Callable[[Given], Made]", given: Given, name: str = "") -> Made:
    try:
        return make(given)
    except ConfigurationError as error:
        raise OptionError(f"option {PREFIX}{name}{error}") from None


def whole_number(properties: Mapping[str, str], name: str, default: int, *, least: int = 0) -> int:
    text = properties.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        raise OptionError(f"option {PREFIX}{name} is {text!r}; it must be a whole number") from None
    if value < least:
        raise OptionError(f"option {PREFIX}{name} is {value}; it must be at least {least}")
    return value


def _choice(properties: Mapping[str, str], name: str, choices: tuple[str, ...]) -> int:
    text = properties.get(name, choices[0]).lower()
    if text not in choices:
        raise OptionError(f"option {PREFIX}{name} is {text!r}; choose one of {', '.join(choices)}")
    return choices.index(text)
