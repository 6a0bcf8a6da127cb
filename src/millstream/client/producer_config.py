"""The settings of a producer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.client.choices import AckMode
from millstream.client.errors import ConfigurationError
from millstream.client.partitioner import HashPartitioner, Partitioner, PartitionFunction
from millstream.client.serde import Serde, Serializer
from millstream.client.settings import at_least, names_checked, one_of, servers, to_properties

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
# What the client decides by itself, or takes from a field in another form.
_OWN = {
    "bootstrap.servers": "bootstrap_servers",
    "enable.idempotence": "enable_idempotence",
    "partitioner": "partitioner",
}
_COMPRESSION_TYPES = ("none", "gzip", "snappy", "lz4", "zstd")


@names_checked
@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """Settings of a `Producer`. None leaves a setting to librdkafka's default.

    A failed request is retried by librdkafka after `retry_backoff_ms`, doubled each time up to
    `retry_backoff_max_ms`, with 20 % of jitter; a message is given up after `retries` or `delivery_timeout_ms`,
    whichever comes first.
    """

    bootstrap_servers: Sequence[str] | str
    """Addresses (host:port) of one or more brokers; the others are found through them."""
    client_id: str = "millstream"
    acks: AckMode = AckMode.ALL
    enable_idempotence: bool | None = None
    """Let the broker drop what a retry sent twice, and keep the order. On by default where `acks` is ALL."""
    batch_size: int | None = None
    """Bytes of a batch that is sent without waiting longer (1,000,000)."""
    linger_ms: float | None = None
    """How long a batch waits to get fuller (5)."""
    compression_type: str = "none"
    """none, gzip, snappy, lz4 or zstd."""
    retries: int | None = None
    """How often a request is sent again (no limit but `delivery_timeout_ms`)."""
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    delivery_timeout_ms: int = 120_000
    """After this time a message that could not be stored fails; retries are included."""
    request_timeout_ms: int | None = None
    max_message_size: int | None = None
    """Bytes of the largest message that is accepted (1,000,000)."""
    max_block_ms: int = 60_000
    """How long a send waits while the queue of messages on their way is full."""
    partitioner: Partitioner | PartitionFunction = field(default_factory=HashPartitioner)
    key_serializer: Serde | Serializer | None = None
    """None takes bytes as they are and str as UTF-8; so does `value_serializer`."""
    value_serializer: Serde | Serializer | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further properties by librdkafka's names: `{"security.protocol": "SSL", "ssl.ca.location": "ca.pem"}`."""

    def __post_init__(self) -> None:
        servers(self.bootstrap_servers)
        if self.acks not in tuple(AckMode):
            raise ConfigurationError(
                f"acks is {self.acks!r}; choose AckMode.NONE, AckMode.LEADER or AckMode.ALL"
            )
        one_of(self, "compression_type", _COMPRESSION_TYPES)
        at_least(self, 0, "linger_ms", "retries", "max_block_ms")
        at_least(self, 1, "batch_size", "retry_backoff_ms", "retry_backoff_max_ms", "delivery_timeout_ms")
        if self.enable_idempotence and self.acks != AckMode.ALL:
            raise ConfigurationError("enable_idempotence needs acks=AckMode.ALL")
        to_properties(self, _PROPERTIES, _OWN)

    def properties(self) -> dict[str, Any]:
        """What librdkafka is given."""
        idempotent = self.acks == AckMode.ALL if self.enable_idempotence is None else self.enable_idempotence
        return {
            "bootstrap.servers": servers(self.bootstrap_servers),
            "enable.idempotence": idempotent,
            # Java's choice, where librdkafka's own default is CRC-32.
            "partitioner": "murmur2_random",
            **to_properties(self, _PROPERTIES, _OWN),
        }
