"""Sends dead letters back to the topics they came from."""

from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from millstream.client.errors import UnknownTopicError
from millstream.client.queue_consumer import QueueConsumer, QueueMessage
from millstream.protocol.queue_call import DEAD_LETTER_PREFIX as PREFIX
from millstream.protocol.queue_call import SOURCE_GONE_MS, STAYS, source_of
from millstream.protocol.records import Headers

Send = Callable[[str, bytes | None, bytes | None, Headers], None]
"""Topic, key, value and headers. Returns when the message is durable; UnknownTopicError if there is no such topic."""


class Redriven(msgspec.Struct, frozen=True):
    """A dead letter and the topic that it went back to; None if it STAYS."""

    letter: QueueMessage
    topic: str | None


def redrive(consumer: QueueConsumer, send: Send, most: int, timeout: float = 2.0) -> Iterator[Redriven]:
    """Send each dead letter to its source topic, without the dead-letter headers, then accept it.

    After a failure in between, a message may be sent twice; none is lost.
    """
    left = most
    while left > 0:
        letters = consumer.receive(min(left, 100), timeout)
        if not letters:
            return
        left -= len(letters)
        waiting = deque(letters)
        try:
            while waiting:
                topic = _redrive(consumer, send, waiting[0])
                yield Redriven(waiting.popleft(), topic)
        finally:
            # Letters that were not tried must not get closer to their delivery limit.
            consumer._give_back(waiting)  # noqa: SLF001


def _redrive(consumer: QueueConsumer, send: Send, letter: QueueMessage) -> str | None:
    topic = source_of(letter.headers)
    if topic is None:
        consumer.reject(letter, reason=STAYS)
    else:
        headers = tuple(each for each in letter.headers if not each[0].startswith(PREFIX))
        try:
            send(topic, letter.key, letter.value, headers)
        except UnknownTopicError:
            # Those behind it have other topics.
            consumer.release(letter, delay=SOURCE_GONE_MS / 1000)
            return None
        consumer.accept(letter)
    return topic
