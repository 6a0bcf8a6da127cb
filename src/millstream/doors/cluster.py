"""What there is in the cluster, who leads and coordinates it, and asking coordinators on whichever node they are."""

import enum
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from millstream.cluster.metadata.commands import Command
from millstream.cluster.metadata.image import BrokerImage, MetadataImage
from millstream.cluster.metadata.topics import CreatedTopic, NewTopic
from millstream.coordinator.decision import Request
from millstream.doors.caller import Caller
from millstream.doors.partitions import Place
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


Result = TypeVar("Result")


class ClusterView(Protocol):
    """As callers are told: what has just gone is not among it."""

    @property
    def node_id(self) -> int:
        """This node's own; -1 where it is not a broker."""
        ...

    def brokers(self) -> Sequence[BrokerImage]:
        """Those that take part, by their ids."""
        ...

    def leader(self, place: Place) -> int | None:
        """None while it has no leader."""
        ...

    def coordinator(self, kind: CoordinatorKind, key: str) -> int | None:
        """None while there is none, and before the first use of its kind."""
        ...


class Metadata(Protocol):
    @property
    def image(self) -> MetadataImage:
        """As of now; never changed in place, so it may be kept."""
        ...

    def watch(self, changed: Callable[[MetadataImage, MetadataImage], None]) -> Callable[[], None]:
        """Call `changed(old, new)` after each change, until what is returned is called."""
        ...

    async def create_topics(self, caller: Caller, topics: Sequence[NewTopic]) -> tuple[CreatedTopic, ...]:
        """One outcome for each; those created can be used here when this returns."""
        ...

    async def submit(self, command: Command[Result]) -> Result:
        """Any other change, for which the door has asked the authoriser. KafkaError when it is refused."""
        ...
