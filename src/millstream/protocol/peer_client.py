"""The first words of a connection on which a node is to answer for itself only, and for whom its requests are.

A node that forwards a client's requests says which client; our own tools and nodes that want a certain node say nothing
more. Where nothing is forwarded the words change nothing.
"""

from struct import Struct
from typing import NamedTuple

from millstream.protocol.api import PEER_CLIENT
from millstream.protocol.wire import I32, Reader, string

_HEAD = Struct(">hhih")
"""API key, version, correlation id, a client id of null."""


class Greeting(NamedTuple):
    cluster_id: str = ""
    """Of the forwarding node; empty for who speaks for itself."""
    node_id: int = -1
    client: str = ""
    """The client's address and port."""


def encode_greeting(greeting: Greeting) -> bytes:
    return (
        string(greeting.cluster_id, flexible=False)
        + I32.pack(greeting.node_id)
        + string(greeting.client, flexible=False)
    )


def for_itself(correlation_id: int) -> bytes:
    """The whole request, without the size in front: what follows is for the node that it is sent to."""
    return _HEAD.pack(PEER_CLIENT, 0, correlation_id, -1) + encode_greeting(Greeting())


def decode_greeting(data: memoryview) -> Greeting:
    reader = Reader(data)
    return Greeting(reader.string(), reader.i32(), reader.string())
