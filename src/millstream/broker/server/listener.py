"""Where a node is reached: the APIs that it takes there, and what those who connect are told of nodes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from millstream.cluster.metadata.image import TopicImage
from millstream.cluster.metadata.records import Endpoint

if TYPE_CHECKING:
    from millstream.broker.api.call import Call
    from millstream.broker.server.connection import Connection

NewRelay = Callable[["Connection"], "Relay | None"]


class Listener(msgspec.Struct, frozen=True):
    name: str
    apis: frozenset[int]
    """The keys of the APIs that are served to those who connect there."""
    trusts_nodes: bool = False
    """Whoever connects there may be another node, and is believed what only nodes may say."""
    option: str = "--listen"
    """How a user chooses the address."""
    new_relay: NewRelay | None = None
    """Where this node may answer for others to those who connect there."""


WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound


class ShownNode(NamedTuple):
    """The one broker that a client is told of, which answers for all."""

    node_id: int
    host: str
    port: int


def host_for(endpoint: Endpoint, call: "Call") -> str:
    """A node that listens everywhere and advertises no name tells each client the address it came by."""
    return call.local_host if endpoint.host in WILDCARDS else endpoint.host


TAKEN = object()


class Relay(Protocol):
    """What a client's connection has where this node answers for others too; made in `routing`."""

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
        """The node that the client is told coordinates its groups; None where it is told the real one."""
        ...

    def shown_leader(self, topic: TopicImage) -> int | None:
        """The node that the client is told leads the topic's partitions; None where it is told the real ones."""
        ...

    def takes(self, call: "Call", request: memoryview, position: int) -> object:
        """TAKEN where others answer the request, or a part of it. Else it is left to this node: the request as it was
        read, None if it was not.
        """
        ...

    def close(self) -> None: ...
