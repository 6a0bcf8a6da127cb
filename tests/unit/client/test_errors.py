import pytest
from confluent_kafka import KafkaError

from millstream.client import (
    ClientError,
    ConnectionFailed,
    GroupChanged,
    MessageTooLarge,
    NotAuthorized,
    NotAvailable,
    OffsetOutOfRange,
    QueueFull,
    TimedOut,
    UnknownTopic,
)
from millstream.client.errors import _KIND_BY_NAME, from_kafka
from millstream.protocol.errors import ErrorCode


@pytest.mark.parametrize(
    ("code", "kind", "retriable"),
    [
        (KafkaError._ALL_BROKERS_DOWN, ConnectionFailed, True),
        (KafkaError._MSG_TIMED_OUT, TimedOut, True),
        (KafkaError._QUEUE_FULL, QueueFull, True),
        (KafkaError.NOT_ENOUGH_REPLICAS, NotAvailable, True),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, UnknownTopic, False),
        (KafkaError.MSG_SIZE_TOO_LARGE, MessageTooLarge, False),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, NotAuthorized, False),
        (KafkaError._AUTO_OFFSET_RESET, OffsetOutOfRange, False),
        (KafkaError.ILLEGAL_GENERATION, GroupChanged, False),
        (KafkaError.INVALID_TXN_STATE, ClientError, False),
    ],
)
def test_error_of_librdkafka_becomes_one_of_ours(code: int, kind: type[ClientError], retriable: bool) -> None:
    error = from_kafka("sending to events", KafkaError(code))

    assert type(error) is kind
    assert error.retriable is retriable
    assert error.code == KafkaError(code).name()
    assert str(error).startswith("sending to events: ")


def test_every_name_is_one_of_librdkafkas_or_kafkas_own() -> None:
    known = (KafkaError, ErrorCode)
    assert [name for name in _KIND_BY_NAME if not any(hasattr(each, name) for each in known)] == []


def test_standard_exceptions_catch_ours() -> None:
    assert issubclass(TimedOut, TimeoutError)
    assert issubclass(ConnectionFailed, ConnectionError)
    assert issubclass(UnknownTopic, LookupError)
