"""Metadata of the cluster, its leaders and coordinators, and requests to coordinators on any node."""

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
    """The value is the internal topic that holds the coordinator's state."""

    GROUP = OFFSETS_TOPIC
    TRANSACTION = TRANSACTIONS_TOPIC
    SHARE = SHARE_STATE_TOPIC
    MQTT_SESSION = MQTT_SESSIONS_TOPIC


class Coordinators(Protocol):
    async def ask(
        self, caller: Caller, kind: CoordinatorKind, key: str, request: Request[A], *, timeout_s: float = 10.0
    ) -> A:
        """The coordinator's answer once everything it depends on is durable; KafkaError if it refuses.

        The door has asked the authoriser. `key` selects the coordinator: a group's id, a client id. Waits within the
        timeout for a coordinator that moves or loads. A request that may have been decided is not sent again, and
        fails with REQUEST_TIMED_OUT.
        """
        ...

    async def ask_all(
        self, caller: Caller, kind: CoordinatorKind, request: Request[A], *, timeout_s: float = 10.0
    ) -> list[A]:
        """The answers of all coordinators of the kind, on all nodes; KafkaError if one fails or is missing.

        Empty before the first use of the kind.
        """
        ...


Result = TypeVar("Result")


class ClusterView(Protocol):
    """Brokers and leaders as reported to callers, without brokers that have just gone."""

    @property
    def node_id(self) -> int:
        """This node's id; -1 in a process that is not a broker."""
        ...

    def brokers(self) -> Sequence[BrokerImage]:
        """The brokers that are alive, by id."""
        ...

    def leader(self, place: Place) -> int | None:
        """The partition's leader; None while it has none."""
        ...

    def coordinator(self, kind: CoordinatorKind, key: str) -> int | None:
        """The coordinator's node; None while there is none, and before the first use of the kind."""
        ...


class Metadata(Protocol):
    @property
    def image(self) -> MetadataImage:
        """The metadata as of now. It never changes in place, so a caller may keep it."""
        ...

    def watch(self, changed: Callable[[MetadataImage, MetadataImage], None]) -> Callable[[], None]:
        """Call `changed(old, new)` after each change. Returns a function that ends this."""
        ...

    async def create_topics(self, caller: Caller, topics: Sequence[NewTopic]) -> tuple[CreatedTopic, ...]:
        """Create topics; returns one outcome for each. New topics can be used on this node at once."""
        ...

    async def submit(self, command: Command[Result]) -> Result:
        """Submit any other change; the door has asked the authoriser. KafkaError if it is refused."""
        ...
