"""The systems under test, each in processes of its own: our broker, and librdkafka's mock cluster."""

from collections.abc import Mapping
from enum import Enum
from typing import Protocol

from bench.machine import Usage
from bench.model import Peer


class PeerError(Exception):
    """A peer that did not start, answer or stop; the message ends with the last lines it logged."""


class UnsupportedError(Exception):
    """The peer cannot do what the scenario needs; it is skipped with this reason."""


class Durability(Enum):
    """When a topic's log reaches the disk; the value is the topic's configuration."""

    DURABLE = "durable"
    RELAXED = "relaxed"

    @property
    def topic_config(self) -> Mapping[str, str]:
        return {"flush.ms": "1000"} if self is Durability.RELAXED else {}


class RunningPeer(Protocol):
    @property
    def kind(self) -> Peer: ...

    @property
    def bootstrap(self) -> str: ...

    def create_topic(self, name: str, partitions: int, durability: Durability) -> None: ...

    def delete_topic(self, name: str) -> None: ...

    def usage(self) -> Usage: ...

    def stop(self) -> None: ...
