"""Topics of the pipeline, created or waited for when they do not exist, also while no broker can be reached."""

import threading
from collections.abc import Callable
from typing import Any

from millstream.client.errors import UnknownTopicError, from_kafka

_REQUEST_TIMEOUT_S = 10.0
# librdkafka does not say that a connection was refused, it waits for as long as it may.
_LOOK_TIMEOUT_S = 3.0
_RETRY_S = 1.0
# How many topics an error lists.
_NAMED = 10

OnWaiting = Callable[[str], object]
"""Told, each time, why the cluster could not be asked."""


def ensure_topic(
    bootstrap: str, name: str, partitions: int, *, on_waiting: OnWaiting, stop: threading.Event
) -> int:
    """How many partitions the topic has; it is created with `partitions` when there is none.

    Waits for a cluster that cannot be reached, until `stop`, and then gives 0. Raises ClientError when the cluster
    refuses.
    """
    return _until_found(
        bootstrap,
        lambda admin: _partitions(admin, name) or _create(admin, name, partitions),
        on_waiting,
        stop,
    )


def await_topic(
    bootstrap: str, name: str, *, wait: bool, on_waiting: OnWaiting, stop: threading.Event
) -> int:
    """How many partitions the topic has. One that is not there is waited for, or is an UnknownTopicError.

    It is not created: a name that is not there may be a mistake.
    """

    def look(admin: Any) -> int:
        topics = admin.list_topics(timeout=_LOOK_TIMEOUT_S).topics
        found = _size(topics.get(name))
        if found:
            return found
        others = ", ".join(sorted(each for each in topics if not each.startswith("__"))[:_NAMED]) or "none"
        missing = f"there is no topic {name} at {bootstrap} (topics: {others})"
        if not wait:
            raise UnknownTopicError(f"{missing}; a streamer creates it, or: millstream topic create {name}")
        on_waiting(missing)
        return 0

    return _until_found(bootstrap, look, on_waiting, stop)


def _until_found(
    bootstrap: str, look: Callable[[Any], int], on_waiting: OnWaiting, stop: threading.Event
) -> int:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    # librdkafka would write every failed connection to standard error.
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "millstream", "log_level": 0})
    while not stop.is_set():
        try:
            found = look(admin)
            if found:
                return found
        except KafkaException as error:
            failure = from_kafka("looking for topics", error.args[0])
            if not failure.retriable:
                raise failure from error
            on_waiting(f"no answer from {bootstrap}: {error.args[0].str()}")
        stop.wait(_RETRY_S)
    return 0


def _partitions(admin: Any, name: str) -> int:
    # All topics: asking for one by name would create it, with as many partitions as the cluster likes.
    return _size(admin.list_topics(timeout=_LOOK_TIMEOUT_S).topics.get(name))


def _size(topic: Any) -> int:
    return len(topic.partitions) if topic is not None and topic.error is None else 0


def _create(admin: Any, name: str, partitions: int) -> int:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    future = admin.create_topics([NewTopic(name, partitions)], request_timeout=_REQUEST_TIMEOUT_S)[name]
    try:
        future.result()
    except KafkaException as error:
        # Another instance was faster.
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        return _partitions(admin, name) or partitions
    return partitions
