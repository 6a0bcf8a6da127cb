"""Where a client is told to connect to."""

from typing import NamedTuple, Protocol

from millstream.cluster.metadata.records import Endpoint

WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound


class ShownNode(NamedTuple):
    """The one broker that a client is told of, which answers for all."""

    node_id: int
    host: str
    port: int


class Caller(Protocol):
    @property
    def local_host(self) -> str:
        """The address of this node that the client used."""
        ...

    @property
    def only_node(self) -> ShownNode | None:
        """What a client for whom this node answers in the place of all is told; None for others."""
        ...


def host_for(endpoint: Endpoint, caller: Caller) -> str:
    """A node that listens everywhere and advertises no name tells each client the address it came by."""
    return caller.local_host if endpoint.host in WILDCARDS else endpoint.host
