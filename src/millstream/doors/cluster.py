"""What there is in the cluster, and who leads and coordinates it."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from millstream.cluster.metadata.commands import Command
from millstream.cluster.metadata.image import BrokerImage, MetadataImage
from millstream.cluster.metadata.topics import CreatedTopic, NewTopic
from millstream.doors.caller import Caller
from millstream.doors.coordinators import CoordinatorKind
from millstream.doors.partitions import Place

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
