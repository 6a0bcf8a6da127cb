"""The settings of a consumer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic

from millstream.client.errors import ConfigurationError
from millstream.client.serde import Deserializer, K, Serde, V
from millstream.client.settings import (
    OffsetResetPolicy,
    at_least,
    names_checked,
    one_of,
    servers,
    to_properties,
)

_PROPERTIES = {
    "group_instance_id": "group.instance.id",
    "group_protocol": "group.protocol",
    "client_id": "client.id",
    "auto_commit_interval_ms": "auto.commit.interval.ms",
    "session_timeout_ms": "session.timeout.ms",
    "heartbeat_interval_ms": "heartbeat.interval.ms",
    "max_poll_interval_ms": "max.poll.interval.ms",
    "fetch_min_bytes": "fetch.min.bytes",
    "fetch_max_wait_ms": "fetch.wait.max.ms",
    "metadata_max_age_ms": "topic.metadata.refresh.interval.ms",
    "assignment_strategy": "partition.assignment.strategy",
    "isolation_level": "isolation.level",
}
# Properties that the client decides by itself, or derives from a field of another form.
_OWN = {
    "bootstrap.servers": "bootstrap_servers",
    "group.id": "group_id",
    "auto.offset.reset": "auto_offset_reset",
    "enable.auto.commit": "enable_auto_commit",
    "enable.auto.offset.store": "enable_auto_commit",
}
# librdkafka wants a name even from a consumer that joins no group and commits nothing.
_NO_GROUP = "millstream-no-group"


@names_checked
@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(Generic[K, V]):
    """Settings of a `Consumer`. None leaves a setting to librdkafka's default, which stands in brackets.

    >>> config = ConsumerConfig(bootstrap_servers="localhost:9092", group_id="my-group", auto_offset_reset="earliest")
    >>> config.max_poll_records
    500

    bootstrap_servers: addresses (host:port) of one or more brokers; the others are found through them
    group_id: the consumer group; needed to subscribe and to commit, not to read partitions given to `assign`
    group_instance_id: makes a static member: a restart within the session timeout gets its partitions back without a
        rebalance
    group_protocol: "classic", or "consumer" for assignment by the broker (KIP-848)
    client_id: the name that the broker's log and quotas know this client by
    auto_offset_reset: where to start without a committed offset: "earliest", "latest" or "none"
    enable_auto_commit: commit in the background what was handed out before the latest `poll`, so that a crash loses
        nothing
    auto_commit_interval_ms: how often that is done
    session_timeout_ms: a member that the group has not heard from for so long is taken for dead (45,000)
    heartbeat_interval_ms: how often a member tells its group that it lives (3,000)
    max_poll_interval_ms: a member that does not poll for so long loses its partitions (300,000)
    max_poll_records: messages that one `poll` returns at most
    fetch_min_bytes: the broker answers when it has so many bytes (1)
    fetch_max_wait_ms: or when it has waited for so long (500)
    assignment_strategy: range, roundrobin or cooperative-sticky; only with the classic protocol
    isolation_level: read_committed (the default) or read_uncommitted
    metadata_max_age_ms: how soon topics and partitions that were created later are found
    key_deserializer: a Serde or a function; None gives bytes
    value_deserializer: as `key_deserializer`
    extra: further properties by librdkafka's names: `{"security.protocol": "SSL", "ssl.ca.location": "ca.pem"}`
    """

    bootstrap_servers: Sequence[str] | str
    group_id: str | None = None
    group_instance_id: str | None = None
    group_protocol: str | None = None
    client_id: str = "millstream"
    auto_offset_reset: OffsetResetPolicy | str = OffsetResetPolicy.LATEST
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    session_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None
    max_poll_interval_ms: int | None = None
    max_poll_records: int = 500
    fetch_min_bytes: int | None = None
    fetch_max_wait_ms: int | None = None
    assignment_strategy: str | None = None
    isolation_level: str | None = None
    metadata_max_age_ms: int = 5_000
    key_deserializer: Serde[K] | Deserializer[K] | None = None
    value_deserializer: Serde[V] | Deserializer[V] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        servers(self.bootstrap_servers)
        if self.auto_offset_reset not in tuple(OffsetResetPolicy):
            raise ConfigurationError(
                f'auto_offset_reset is {self.auto_offset_reset!r}; choose "earliest", "latest" or "none"'
            )
        object.__setattr__(self, "auto_offset_reset", OffsetResetPolicy(self.auto_offset_reset))
        one_of(self, "group_protocol", ("classic", "consumer"))
        one_of(self, "isolation_level", ("read_committed", "read_uncommitted"))
        at_least(self, 1, "max_poll_records", "auto_commit_interval_ms", "metadata_max_age_ms")
        to_properties(self, _PROPERTIES, _OWN)

    def properties(self) -> dict[str, Any]:
        """The properties for librdkafka."""
        reset = "error" if self.auto_offset_reset == OffsetResetPolicy.NONE else str(self.auto_offset_reset)
        return {
            "bootstrap.servers": servers(self.bootstrap_servers),
            "group.id": self.group_id or _NO_GROUP,
            "auto.offset.reset": reset,
            "enable.auto.commit": self.enable_auto_commit and self.group_id is not None,
            # The consumer says itself what has been processed: see Consumer.poll.
            "enable.auto.offset.store": False,
            # A consumer that empties librdkafka's queue within the default of a second would stand still.
            "fetch.queue.backoff.ms": 20,
            **to_properties(self, _PROPERTIES, _OWN),
        }


def consumer_config(
    config: ConsumerConfig[K, V] | str | Sequence[str],
    key_deserializer: Serde[K] | Deserializer[K] | None,
    value_deserializer: Serde[V] | Deserializer[V] | None,
    settings: Mapping[str, Any],
) -> ConsumerConfig[K, V]:
    """The configuration of a consumer, from an object or addresses, and from settings by name."""
    given = dict(settings)
    if key_deserializer is not None:
        given["key_deserializer"] = key_deserializer
    if value_deserializer is not None:
        given["value_deserializer"] = value_deserializer
    if isinstance(config, ConsumerConfig):
        return replace(config, **given) if given else config
    return ConsumerConfig(bootstrap_servers=config, **given)
