"""Ask the coordinator of a group, a queue, a session, on whichever node it is."""

import enum
from typing import Protocol, TypeVar

from millstream.coordinator.decision import Request
from millstream.doors.caller import Caller
from millstream.protocol.internal_topics import (
    MQTT_SESSIONS_TOPIC,
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
)

A = TypeVar("A")


class CoordinatorKind(enum.Enum):
    """The value is the name of the internal topic in which it keeps its state."""

    GROUP = OFFSETS_TOPIC
    TRANSACTION = TRANSACTIONS_TOPIC
    SHARE = SHARE_STATE_TOPIC
    MQTT_SESSION = MQTT_SESSIONS_TOPIC


class Coordinators(Protocol):
    async def ask(
        self, caller: Caller, kind: CoordinatorKind, key: str, request: Request[A], *, timeout_s: float = 10.0
    ) -> A:
        """The coordinator's answer, when all it rests on is durable, or the KafkaError with which it refuses.

        The door has asked the authoriser. `key` says which coordinator: a group's id, a client id. A coordinator that
        moves or loads is waited for within the time. A request that may have been decided is not sent again:
        REQUEST_TIMED_OUT.
        """
        ...

    async def ask_all(
        self, caller: Caller, kind: CoordinatorKind, request: Request[A], *, timeout_s: float = 10.0
    ) -> list[A]:
        """The answers of all coordinators of the kind, on all nodes; KafkaError when one of them has none to give."""
        ...
