"""The client's exceptions, and how Kafka's and librdkafka's errors map to them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millstream.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from millstream.client.delivery import SendResult


class ClientError(Exception):
    """Any failure of this client.

    >>> from millstream.client import Producer
    >>> with Producer("localhost:9092") as producer:
    ...     try:
    ...         producer.send("events", b"x" * 2_000_000).result()
    ...     except ClientError as error:
    ...         print(type(error).__name__, error.code, error.retriable)
    MessageTooLargeError MSG_SIZE_TOO_LARGE False

    `retriable` tells whether the same call may succeed later without a change; librdkafka has then already retried
    until its own limits (`delivery_timeout_ms`, `retries`). `code` is Kafka's name of the error, where it has one.
    """

    retriable = False

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class ConfigurationError(ClientError, ValueError):
    """A setting that is unknown or cannot be used.

    >>> from millstream.client import Producer
    >>> Producer("localhost:9092", ack="all")
    Traceback (most recent call last):
    millstream.client.errors.ConfigurationError: ProducerConfig has no setting 'ack'; did you mean 'acks'?
    """


class SerializationError(ClientError, ValueError):
    """A key or value that could not be turned into bytes; nothing was sent.

    >>> from millstream.client import STRING, Producer
    >>> with Producer("localhost:9092", value_serializer=STRING) as producer:
    ...     producer.send("events", 42)
    Traceback (most recent call last):
    millstream.client.errors.SerializationError: sending to events: the value cannot be serialized: a str is needed, ...
    """


class DeserializationError(ClientError, ValueError):
    """A key or value that could not be read; the message's `raw_key` and `raw_value` still can be.

    >>> from millstream.client import JSON, Consumer, Producer
    >>> with Producer("localhost:9092") as producer:
    ...     stored = producer.send("events", "no JSON").result()
    >>> with Consumer("localhost:9092", value_deserializer=JSON) as consumer:
    ...     consumer.assign({(stored.topic, stored.partition): stored.offset})
    ...     message = next(iter(consumer))
    >>> try:
    ...     message.value
    ... except DeserializationError:
    ...     print(message.raw_value)
    b'no JSON'
    """


class ClosedError(ClientError):
    """The producer or consumer was closed and cannot be used again.

    >>> from millstream.client import Producer
    >>> with Producer("localhost:9092") as producer:
    ...     handle = producer.send("events", "Hello")
    >>> producer.send("events", "one more")
    Traceback (most recent call last):
    millstream.client.errors.ClosedError: the producer is closed; create a new one
    """


class ConnectionFailedError(ClientError, ConnectionError):
    """No broker could be reached. `except ConnectionError` catches it too.

    >>> ConnectionFailedError("no broker").retriable
    True
    """

    retriable = True


class TimedOutError(ClientError, TimeoutError):
    """No answer in time. Whether a message was stored is then unknown; idempotence makes another try safe.

    >>> from millstream.client import Producer
    >>> with Producer("localhost:9092", linger_ms=500) as producer:
    ...     handle = producer.send("events", "Hello")
    ...     try:
    ...         handle.result(timeout=0)
    ...     except TimedOutError as error:
    ...         print(error)
    sending to events: no answer within 0 s; it may still come
    """

    retriable = True


class QueueFullError(ClientError):
    """Messages are sent faster than the broker takes them, and `max_block_ms` was not long enough to wait.

    >>> QueueFullError("the queue was full").retriable
    True
    """

    retriable = True


class NotAvailableError(ClientError):
    """The cluster cannot do it now: no leader, no coordinator, or too few replicas in sync.

    >>> NotAvailableError("too few replicas", "NOT_ENOUGH_REPLICAS").code
    'NOT_ENOUGH_REPLICAS'
    """

    retriable = True


class UnknownTopicError(ClientError, LookupError):
    """The topic or partition does not exist. `except LookupError` catches it too.

    >>> from millstream.client import OffsetManager
    >>> with OffsetManager("localhost:9092", group_id="my-group") as offsets:
    ...     try:
    ...         offsets.resolve("nosuch", 0, "latest")
    ...     except UnknownTopicError as error:
    ...         print(error)
    asking for the offsets of nosuch, partition 0: ...
    """


class UnknownPartitionError(UnknownTopicError):
    """There is no partition with this number. librdkafka also reports this for a topic that it does not know yet.

    >>> from millstream.client import Producer
    >>> with Producer("localhost:9092") as producer:
    ...     stored = producer.send("events", "Hello").result()
    ...     try:
    ...         producer.send("events", "Hello", partition=999).result()
    ...     except UnknownPartitionError as error:
    ...         print(error)
    sending to events, partition 999: ...
    """


class TopicExistsError(ClientError):
    """A topic with this name already exists.

    >>> from millstream.client import Admin
    >>> with Admin("localhost:9092") as admin:
    ...     admin.create_topic("twice")
    ...     try:
    ...         admin.create_topic("twice")
    ...     except TopicExistsError as error:
    ...         print(error.code)
    TOPIC_ALREADY_EXISTS
    """


class UnknownGroupError(ClientError, LookupError):
    """There is no consumer group with this name. `except LookupError` catches it too.

    >>> from millstream.client import Admin
    >>> with Admin("localhost:9092") as admin:
    ...     try:
    ...         admin.describe_group("nosuch")
    ...     except UnknownGroupError as error:
    ...         print(error)
    there is no group 'nosuch'
    """


class MessageTooLargeError(ClientError, ValueError):
    """The message is larger than `max_message_size` or than the topic's max.message.bytes.

    >>> from millstream.client import Producer
    >>> with Producer("localhost:9092", max_message_size=2000) as producer:
    ...     producer.send("events", b"x" * 3000)
    Traceback (most recent call last):
    millstream.client.errors.MessageTooLargeError: sending to events: ...
    """


class NotAuthorizedError(ClientError, PermissionError):
    """The cluster refused the credentials or the operation. `except PermissionError` catches it too.

    >>> NotAuthorizedError("no", "TOPIC_AUTHORIZATION_FAILED").retriable
    False
    """


class OffsetOutOfRangeError(ClientError, LookupError):
    """There is nothing at the position to read from, and `auto_offset_reset` is NONE.

    >>> from millstream.client import Consumer, Producer
    >>> with Producer("localhost:9092") as producer:
    ...     stored = producer.send("short", "Hello", partition=0).result()
    >>> with Consumer("localhost:9092", auto_offset_reset="none") as consumer:
    ...     consumer.assign({("short", 0): 1000})
    ...     next(iter(consumer))
    Traceback (most recent call last):
    millstream.client.errors.OffsetOutOfRangeError: reading from short: ...
    """


class GroupChangedError(ClientError):
    """The partition belongs to another member of the group by now; what was read from it will be read again there.

    >>> GroupChangedError("the group has rebalanced", "ILLEGAL_GENERATION").code
    'ILLEGAL_GENERATION'
    """


class BatchFailedError(ClientError):
    """Some messages of a batch were not stored. `results` has an entry for each, in order; `error` says which.

    >>> from millstream.client import Producer, ProducerRecord
    >>> with Producer("localhost:9092", max_message_size=2000) as producer:
    ...     try:
    ...         producer.send_batch([ProducerRecord("events", "good"), ProducerRecord("events", "x" * 3000)])
    ...     except BatchFailedError as error:
    ...         print([result.error is None for result in error.results])
    [True, False]
    """

    def __init__(self, results: "Sequence[SendResult]") -> None:
        failed = [result for result in results if result.error is not None]
        super().__init__(
            f"{len(failed)} of {len(results)} messages were not stored; the first: {failed[0].error}"
        )
        self.results = results
        self.retriable = all(result.error.retriable for result in failed if result.error is not None)


_KINDS: dict[type[ClientError], tuple[str, ...]] = {
    ConnectionFailedError: ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "NETWORK_EXCEPTION", "BROKER_NOT_AVAILABLE"),
    TimedOutError: ("_TIMED_OUT", "_MSG_TIMED_OUT", "_TIMED_OUT_QUEUE", "REQUEST_TIMED_OUT"),
    QueueFullError: ("_QUEUE_FULL",),
    NotAvailableError: (
        "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "NOT_LEADER_OR_FOLLOWER", "NOT_CONTROLLER",
        "REPLICA_NOT_AVAILABLE", "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "_ISR_INSUFF", "_WAIT_COORD", "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "KAFKA_STORAGE_ERROR", "OFFSET_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "UNSTABLE_OFFSET_COMMIT", "THROTTLING_QUOTA_EXCEEDED",
    ),
    UnknownTopicError: (
        "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_ID",
        "INCONSISTENT_TOPIC_ID",
    ),
    TopicExistsError: ("TOPIC_ALREADY_EXISTS",),
    UnknownGroupError: ("GROUP_ID_NOT_FOUND",),
    UnknownPartitionError: ("_UNKNOWN_PARTITION",),
    MessageTooLargeError: ("MSG_SIZE_TOO_LARGE", "MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_MSG_SIZE"),
    NotAuthorizedError: (
        "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "SASL_AUTHENTICATION_FAILED", "_AUTHENTICATION", "_SSL",
    ),
    OffsetOutOfRangeError: ("OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET", "_NO_OFFSET"),
    GroupChangedError: (
        "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "FENCED_INSTANCE_ID", "_ASSIGNMENT_LOST",
        "STALE_MEMBER_EPOCH", "FENCED_MEMBER_EPOCH", "UNRELEASED_INSTANCE_ID", "_MAX_POLL_EXCEEDED",
    ),
    ConfigurationError: ("_INVALID_ARG", "_CONFLICT"),
}  # fmt: skip
_KIND_BY_NAME = {name: kind for kind, names in _KINDS.items() for name in names}


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def from_code(action: str, code: int, message: str | None = None) -> ClientError:
    """The exception for an error code of a reply; `action` says what was tried, `message` is the node's own text."""
    name = error_name(code)
    if code == ErrorCode.NOT_CONTROLLER:
        message = "the cluster has no controller, because a majority of its nodes does not answer"
    kind = _KIND_BY_NAME.get(name, ClientError)
    return kind(f"{action}: {message} ({name})" if message else f"{action}: {name}", name)


def from_kafka(action: str, error: "KafkaError") -> ClientError:
    """The exception for an error of librdkafka; `action` says what was tried."""
    name = error.name()
    kind = _KIND_BY_NAME.get(name, ClientError)
    failure = kind(f"{action}: {error.str()} ({name})", name)
    if error.retriable():
        failure.retriable = True
    return failure


# Their former names.
ConnectionFailed = ConnectionFailedError
TimedOut = TimedOutError
QueueFull = QueueFullError
NotAvailable = NotAvailableError
UnknownTopic = UnknownTopicError
MessageTooLarge = MessageTooLargeError
NotAuthorized = NotAuthorizedError
OffsetOutOfRange = OffsetOutOfRangeError
GroupChanged = GroupChangedError
BatchFailed = BatchFailedError
