"""What a client's connection has where its node answers for others too; made in `routing`."""

from typing import TYPE_CHECKING, Protocol

from millstream.broker.server.addresses import ShownNode
from millstream.cluster.metadata.image import TopicImage

if TYPE_CHECKING:
    from millstream.broker.api.call import Call

TAKEN = object()


class Relay(Protocol):
    @property
    def is_only_node(self) -> bool:
        """Whether the client is told of no other."""
        ...

    @property
    def only_node(self) -> ShownNode | None:
        """The one broker that the client is told of; None where it is told of all."""
        ...

    @property
    def shown_coordinator(self) -> ShownNode | None:
        """Who the client is told coordinates its groups; None where it is told who does."""
        ...

    def shown_leader(self, topic: TopicImage) -> int | None:
        """Who the client is told leads the topic's partitions; None where it is told who does."""
        ...

    def takes(self, call: "Call", request: memoryview, position: int) -> object:
        """TAKEN where others answer the request, or a part of it. Else it is left to this node: the request as it was
        read, None if it was not.
        """
        ...

    def close(self) -> None: ...
