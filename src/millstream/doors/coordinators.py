"""Ask the coordinator of a group, a queue, a session, on whichever node it is."""

import enum
from typing import Protocol, TypeVar

from millstream.coordinator.decision import Request
from millstream.doors.caller import Caller

A = TypeVar("A")


class CoordinatorKind(enum.Enum):
    """The name of the coordinator is that of its internal topic."""

    GROUP = "__consumer_offsets"
    TRANSACTION = "__transaction_state"
    SHARE = "__share_group_state"
    MQTT_SESSION = "__mqtt_sessions"


class Coordinators(Protocol):
    async def ask(
        self, caller: Caller, kind: CoordinatorKind, key: str, request: Request[A], *, timeout_s: float = 10.0
    ) -> A:
        """The coordinator's answer, when all it rests on is durable, or the KafkaError with which it refuses.

        `key` says which coordinator: a group's id, a client id. A coordinator that moves or loads is waited for
        within the time. A request that may have been decided is not sent again: REQUEST_TIMED_OUT.
        """
        ...
