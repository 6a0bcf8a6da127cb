"""Options that begin with `kafka.`: which are used, refused, or accepted without effect, and what they make."""

import logging
from collections.abc import Mapping

from millstream.spark.security import security_of
from millstream.spark.wire.errors import OptionError
from millstream.spark.wire.settings import ClusterSettings

log = logging.getLogger("millstream.spark")

PREFIX = "kafka."
# Spark's Kafka source refuses these too: it decides them itself.
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
    """Without their prefix. Names are lower case, as Spark hands them over."""
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
    """What a reader needs of the properties. Those that mean nothing to it are named in the log once."""
    ignored = sorted(name for name in properties if name not in _READ and not name.startswith(_SECURITY))
    if ignored:
        names = ", ".join(PREFIX + name for name in ignored)
        log.warning("no effect on format('millstream') when reading: %s", names)
    defaults = ClusterSettings(bootstrap=())
    return ClusterSettings(
        bootstrap=addresses(properties["bootstrap.servers"]),
        security=security_of(properties),
        client_id=properties.get("client.id", defaults.client_id),
        read_committed=_choice(properties, "isolation.level", ("read_uncommitted", "read_committed")) == 1,
        check_crcs=_choice(properties, "check.crcs", ("true", "false")) == 0,
        fetch_bytes=whole_number(properties, "max.partition.fetch.bytes", defaults.fetch_bytes, least=1),
        fetch_max_wait_ms=whole_number(properties, "fetch.max.wait.ms", defaults.fetch_max_wait_ms),
        fetch_min_bytes=whole_number(properties, "fetch.min.bytes", defaults.fetch_min_bytes),
        request_timeout_s=whole_number(properties, "request.timeout.ms", 30_000, least=1) / 1000,
        api_timeout_s=whole_number(properties, "default.api.timeout.ms", 60_000) / 1000,
        retry_backoff_s=whole_number(properties, "retry.backoff.ms", 100, least=1) / 1000,
        receive_buffer_bytes=whole_number(properties, "receive.buffer.bytes", 0, least=-1),
    )


def addresses(servers: str) -> tuple[tuple[str, int], ...]:
    found = []
    for server in servers.split(","):
        # A listener's name in front (PLAINTEXT://) is Kafka's habit.
        address = server.strip().rpartition("://")[2]
        if not address:
            continue
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise OptionError(
                f"option kafka.bootstrap.servers: {server.strip()!r} is not an address host:port"
            )
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise OptionError("option kafka.bootstrap.servers names no address")
    return tuple(found)


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
