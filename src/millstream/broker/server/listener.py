"""A listener of a node: the APIs that it serves, and which nodes its clients are shown."""

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
    """The keys of the APIs that are served there."""
    trusts_nodes: bool = False
    """Connections may come from other nodes, and are trusted with requests that only nodes may send."""
    option: str = "--listen"
    """The option that sets the address."""
    new_relay: NewRelay | None = None
    """Makes a relay where this node may answer for other nodes to a client."""


WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound


class ShownNode(NamedTuple):
    """The only broker that a client is shown, which answers for all."""

    node_id: int
    host: str
    port: int


def host_for(endpoint: Endpoint, call: "Call") -> str:
    """The endpoint's host; for a wildcard address, the address of this node that the client used."""
    return call.local_host if endpoint.host in WILDCARDS else endpoint.host


TAKEN = object()


class Relay(Protocol):
    """Belongs to a client's connection where this node also answers for other nodes; made in `routing`."""

    @property
    def is_only_node(self) -> bool:
        """Whether the client is shown no other node."""
        ...

    @property
    def only_node(self) -> ShownNode | None:
        """The only broker that the client is shown; None where it is shown all."""
        ...

    @property
    def shown_coordinator(self) -> ShownNode | None:
        """The node shown as the coordinator of groups; None where the client is shown the real one."""
        ...

    def shown_leader(self, topic: TopicImage) -> int | None:
        """The node shown as the leader of the topic's partitions; None where the client is shown the real ones."""
        ...

    def takes(self, call: "Call", request: memoryview, position: int) -> object:
        """TAKEN where other nodes answer the request or a part of it. Otherwise this node answers: returns the decoded
        request, or None if it was not decoded.
        """
        ...

    def close(self) -> None: ...
