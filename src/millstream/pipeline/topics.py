"""Creates the pipeline's topics or waits for them, also while no broker can be reached."""

import threading
from collections.abc import Callable

from millstream.client import Admin
from millstream.client.errors import ClientError, TopicExistsError, UnknownTopicError

_TIMEOUT_MS = 3_000
_RETRY_S = 1.0
# The number of topics that an error lists.
_NAMED = 10

OnWaiting = Callable[[str], object]
"""Called with the reason after each attempt that has to be repeated."""


def ensure_topic(
    bootstrap: str, name: str, partitions: int, *, on_waiting: OnWaiting, stop: threading.Event
) -> int:
    """The topic's number of partitions; a missing topic is created with `partitions`.

    Waits until the cluster can be reached, or returns 0 after `stop`. Raises ClientError when the cluster refuses.
    """

    def create(admin: Admin, topics: dict[str, int]) -> int:
        del topics
        try:
            admin.create_topic(name, partitions)
        except TopicExistsError:
            # Another instance was faster; the next attempt finds the topic.
            return 0
        return partitions

    return _until_found(bootstrap, name, create, on_waiting, stop)


def await_topic(
    bootstrap: str, name: str, *, wait: bool, on_waiting: OnWaiting, stop: threading.Event
) -> int:
    """The topic's number of partitions. With `wait` it waits for a missing topic, otherwise raises UnknownTopicError.

    The topic is not created, because an unknown name may be a mistake.
    """

    def missing(admin: Admin, topics: dict[str, int]) -> int:
        del admin
        others = ", ".join(sorted(each for each in topics if not each.startswith("__"))[:_NAMED]) or "none"
        reason = f"there is no topic {name} at {bootstrap} (topics: {others})"
        if not wait:
            raise UnknownTopicError(f"{reason}; a streamer creates it, or: millstream topic create {name}")
        on_waiting(reason)
        return 0

    return _until_found(bootstrap, name, missing, on_waiting, stop)


def _until_found(
    bootstrap: str,
    name: str,
    otherwise: Callable[[Admin, dict[str, int]], int],
    on_waiting: OnWaiting,
    stop: threading.Event,
) -> int:
    with Admin(bootstrap, timeout_ms=_TIMEOUT_MS) as admin:
        while not stop.is_set():
            try:
                topics = {each.name: len(each.partitions) for each in admin.list_topics()}
                found = topics.get(name) or otherwise(admin, topics)
                if found:
                    return found
            except ClientError as error:
                if not error.retriable:
                    raise
                on_waiting(f"no answer from {bootstrap}: {error}")
            stop.wait(_RETRY_S)
    return 0
