"""What can go wrong in the client, as a few exceptions, and which of librdkafka's errors is which of them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from millstream.client.delivery import SendResult


class ClientError(Exception):
    """Any failure of this client.

    `retriable` tells whether the same call may succeed later without a change; librdkafka has then already retried
    until its own limits (`delivery_timeout_ms`, `retries`). `code` is Kafka's name of the error, where it has one.
    """

    retriable = False

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class ConfigurationError(ClientError, ValueError):
    """A setting that is unknown or cannot be used."""


class SerializationError(ClientError, ValueError):
    """A key or value that could not be turned into bytes; nothing was sent."""


class DeserializationError(ClientError, ValueError):
    """A key or value that could not be read; the message's `raw_key` and `raw_value` still can be."""


class ClosedError(ClientError):
    """The producer or consumer was closed and cannot be used again."""


class ConnectionFailed(ClientError, ConnectionError):
    """No broker could be reached."""

    retriable = True


class TimedOut(ClientError, TimeoutError):
    """No answer in time. Whether a message was stored is then unknown; idempotence makes another try safe."""

    retriable = True


class QueueFull(ClientError):
    """Messages are sent faster than the broker takes them, and `max_block_ms` was not long enough to wait."""

    retriable = True


class NotAvailable(ClientError):
    """The cluster cannot do it now: no leader, no coordinator, or too few replicas in sync."""

    retriable = True


class UnknownTopic(ClientError, LookupError):
    """The topic or partition does not exist."""


class MessageTooLarge(ClientError, ValueError):
    """The message is larger than `max_message_size` or than the topic's max.message.bytes."""


class NotAuthorized(ClientError, PermissionError):
    """The cluster refused the credentials or the operation."""


class OffsetOutOfRange(ClientError, LookupError):
    """There is nothing at the position to read from, and `auto_offset_reset` is NONE."""


class GroupChanged(ClientError):
    """The partition belongs to another member of the group by now; what was read from it will be read again there."""


class BatchFailed(ClientError):
    """Some messages of a batch were not stored. `results` has an entry for each, in order; `error` says which."""

    def __init__(self, results: "Sequence[SendResult]") -> None:
        failed = [result for result in results if result.error is not None]
        super().__init__(
            f"{len(failed)} of {len(results)} messages were not stored; the first: {failed[0].error}"
        )
        self.results = results
        self.retriable = all(result.error.retriable for result in failed if result.error is not None)


_KINDS: dict[type[ClientError], tuple[str, ...]] = {
    ConnectionFailed: ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "NETWORK_EXCEPTION", "BROKER_NOT_AVAILABLE"),
    TimedOut: ("_TIMED_OUT", "_MSG_TIMED_OUT", "_TIMED_OUT_QUEUE", "REQUEST_TIMED_OUT"),
    QueueFull: ("_QUEUE_FULL",),
    NotAvailable: (
        "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "REPLICA_NOT_AVAILABLE", "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "_ISR_INSUFF", "_WAIT_COORD", "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "KAFKA_STORAGE_ERROR", "OFFSET_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "UNSTABLE_OFFSET_COMMIT", "THROTTLING_QUOTA_EXCEEDED",
    ),
    UnknownTopic: ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID"),
    MessageTooLarge: ("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_MSG_SIZE"),
    NotAuthorized: (
        "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "SASL_AUTHENTICATION_FAILED", "_AUTHENTICATION", "_SSL",
    ),
    OffsetOutOfRange: ("OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET", "_NO_OFFSET"),
    GroupChanged: (
        "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "FENCED_INSTANCE_ID", "_ASSIGNMENT_LOST",
        "STALE_MEMBER_EPOCH", "FENCED_MEMBER_EPOCH", "UNRELEASED_INSTANCE_ID", "_MAX_POLL_EXCEEDED",
    ),
    ConfigurationError: ("_INVALID_ARG", "_CONFLICT"),
}  # fmt: skip
_KIND_BY_NAME = {name: kind for kind, names in _KINDS.items() for name in names}


def from_kafka(action: str, error: "KafkaError") -> ClientError:
    """The exception for an error of librdkafka; `action` says what was tried."""
    name = error.name()
    kind = _KIND_BY_NAME.get(name, ClientError)
    failure = kind(f"{action}: {error.str()} ({name})", name)
    if error.retriable():
        failure.retriable = True
    return failure
