"""Statistics of a node's door, published under `$SYS/` and as metrics."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from millstream.doors import Place
from millstream.mqtt.record_form import Message
from millstream.mqtt.subscribers import Subscribers
from millstream.observability.metrics import Registry
from millstream.observability.tasks import keep_going

_EVERY_SECONDS = 10.0
# Not in the log, but subscribers handle it like any other place.
_NOWHERE = Place("$SYS", 0)


class Statistics:
    """Counters since the door was opened."""

    __slots__ = ("connections", "received_bytes", "received_messages", "sent_bytes")

    def __init__(self) -> None:
        self.connections = 0
        self.received_bytes = 0
        self.received_messages = 0
        self.sent_bytes = 0


class SysTopics:
    """Publishes the values under `$SYS/` to subscribers on this node, every ten seconds."""

    def __init__(self, subscribers: Subscribers, values: Callable[[], Mapping[str, int]]) -> None:
        self._subscribers = subscribers
        self._values = values
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(keep_going(self._run), name="mqtt $SYS")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            for name, value in self._values().items():
                message = Message(f"$SYS/broker/{name}", str(value).encode(), 0)
                self._subscribers.publish(message, _NOWHERE)


def watch(registry: Registry, values: Callable[[], Mapping[str, int]]) -> None:
    """Register the values as gauges."""
    for name in values():
        registry.computed_gauge(
            f"millstream_mqtt_{name.replace('/', '_').replace(' ', '_')}",
            f"$SYS/broker/{name} of this node.",
            partial(_value, values, name),
        )


def _value(values: Callable[[], Mapping[str, int]], name: str) -> float:
    return values()[name]
