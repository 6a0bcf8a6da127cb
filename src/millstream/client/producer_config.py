"""The settings of a producer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.client.errors import ConfigurationError
from millstream.client.partitioner import HashPartitioner, Partitioner, PartitionFunction
from millstream.client.serde import Serde, Serializer
from millstream.client.settings import AckMode, at_least, names_checked, one_of, servers, to_properties

_PROPERTIES = {
    "client_id": "client.id",
    "acks": "acks",
    "retries": "retries",
    "retry_backoff_ms": "retry.backoff.ms",
    "retry_backoff_max_ms": "retry.backoff.max.ms",
    "batch_size": "batch.size",
    "linger_ms": "linger.ms",
    "compression_type": "compression.type",
    "max_message_size": "message.max.bytes",
    "delivery_timeout_ms": "delivery.timeout.ms",
    "request_timeout_ms": "request.timeout.ms",
}
# Properties that the client decides by itself, or derives from a field of another form.
_OWN = {
    "bootstrap.servers": "bootstrap_servers",
    "enable.idempotence": "enable_idempotence",
    "partitioner": "partitioner",
}
_COMPRESSION_TYPES = ("none", "gzip", "snappy", "lz4", "zstd")


@names_checked
@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """Settings of a `Producer`. None leaves a setting to librdkafka's default, which stands in brackets.

    >>> config = ProducerConfig(bootstrap_servers="localhost:9092", acks="all", compression_type="zstd")
    >>> config.acks
    <AckMode.ALL: -1>

    A failed request is retried by librdkafka after `retry_backoff_ms`, doubled each time up to
    `retry_backoff_max_ms`, with 20 % of jitter; a message is given up after `retries` or `delivery_timeout_ms`,
    whichever comes first.

    bootstrap_servers: addresses (host:port) of one or more brokers; the others are found through them
    client_id: the name that the broker's log and quotas know this client by
    acks: "all" (AckMode.ALL), 1 (AckMode.LEADER) or 0 (AckMode.NONE)
    enable_idempotence: let the broker drop what a retry sent twice, and keep the order; on where `acks` is "all"
    batch_size: bytes of a batch that is sent without waiting longer (1,000,000)
    linger_ms: how long a batch waits to get fuller (5)
    compression_type: none, gzip, snappy, lz4 or zstd
    retries: how often a request is sent again (no limit but `delivery_timeout_ms`)
    retry_backoff_ms: the wait before the first retry
    retry_backoff_max_ms: the longest wait between two retries
    delivery_timeout_ms: after this time a message that could not be stored fails; retries are included
    request_timeout_ms: how long one request waits for its answer (30,000)
    max_message_size: bytes of the largest message that is accepted
    max_block_ms: how long a send waits while the queue of messages on their way is full
    partitioner: a Partitioner, or a function with the arguments of its `partition`
    key_serializer: a Serde or a function; None takes bytes as they are and str as UTF-8
    value_serializer: as `key_serializer`
    extra: further properties by librdkafka's names: `{"security.protocol": "SSL", "ssl.ca.location": "ca.pem"}`
    """

    bootstrap_servers: Sequence[str] | str
    client_id: str = "millstream"
    acks: AckMode | str | int = AckMode.ALL
    enable_idempotence: bool | None = None
    batch_size: int | None = None
    linger_ms: float | None = None
    compression_type: str = "none"
    retries: int | None = None
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int | None = None
    max_message_size: int = 1_100_000
    max_block_ms: int = 60_000
    partitioner: Partitioner | PartitionFunction = field(default_factory=HashPartitioner)
    key_serializer: Serde[Any] | Serializer | None = None
    value_serializer: Serde[Any] | Serializer | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        servers(self.bootstrap_servers)
        object.__setattr__(self, "acks", AckMode.of(self.acks))
        one_of(self, "compression_type", _COMPRESSION_TYPES)
        at_least(self, 0, "linger_ms", "retries", "max_block_ms")
        at_least(self, 1, "batch_size", "retry_backoff_ms", "retry_backoff_max_ms", "delivery_timeout_ms")
        if self.enable_idempotence and self.acks != AckMode.ALL:
            raise ConfigurationError('enable_idempotence needs acks="all"')
        to_properties(self, _PROPERTIES, _OWN)

    def properties(self) -> dict[str, Any]:
        """The properties for librdkafka."""
        idempotent = self.acks == AckMode.ALL if self.enable_idempotence is None else self.enable_idempotence
        return {
            "bootstrap.servers": servers(self.bootstrap_servers),
            "enable.idempotence": idempotent,
            # The Java client's default; librdkafka's own is CRC-32.
            "partitioner": "murmur2_random",
            **to_properties(self, _PROPERTIES, _OWN),
        }


def producer_config(
    config: ProducerConfig | str | Sequence[str], settings: Mapping[str, Any]
) -> ProducerConfig:
    """The configuration of a producer, from an object or addresses, and from settings by name."""
    if isinstance(config, ProducerConfig):
        return replace(config, **settings) if settings else config
    return ProducerConfig(bootstrap_servers=config, **settings)
