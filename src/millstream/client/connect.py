"""Opening librdkafka's clients. confluent-kafka is imported here, on first use, and its errors become ours."""

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
    """Errors of librdkafka as ours; `action` says what was tried."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise from_kafka(action, error.args[0]) from error
    except RuntimeError as error:
        # The binding says so of a client that was closed.
        if "closed" not in str(error).lower():
            raise
        raise ClosedError(f"{action}: it is closed") from error
