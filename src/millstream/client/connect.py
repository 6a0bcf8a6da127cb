"""Opens librdkafka's clients. Imports confluent-kafka on first use, and turns its errors into ours."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from millstream.client.errors import ClosedError, from_kafka

if TYPE_CHECKING:
    from confluent_kafka import Consumer as RawConsumer
    from confluent_kafka import Producer as RawProducer

log = logging.getLogger("millstream.client")
"""librdkafka's own log goes here too."""


def open_producer(properties: Mapping[str, Any]) -> "RawProducer":
    from confluent_kafka import Producer

    with kafka_errors("the producer's configuration"):
        return Producer({**properties, "logger": log})


def open_consumer(properties: Mapping[str, Any]) -> "RawConsumer":
    from confluent_kafka import Consumer

    with kafka_errors("the consumer's configuration"):
        return Consumer({**properties, "logger": log})


@contextmanager
def kafka_errors(action: str) -> Iterator[None]:
    """Turns librdkafka's errors into ours; `action` says what was tried."""
    try:
        yield
    except Exception as error:
        raise_ours(action, error)
        raise


def raise_ours(action: str, error: Exception) -> None:
    """Raise our exception for one of the binding's. Others, such as those of callbacks, are left to the caller."""
    from confluent_kafka import KafkaException

    if isinstance(error, KafkaException):
        raise from_kafka(action, error.args[0]) from error
    # The binding raises this for a closed client.
    if isinstance(error, RuntimeError) and "closed" in str(error).lower():
        raise ClosedError(f"{action}: it is closed") from error
