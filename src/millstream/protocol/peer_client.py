"""The first request on a connection whose requests must not be forwarded to other nodes.

A node that forwards a client's requests names the client in it; our own tools, and nodes that need this particular
node, name none.
"""

from typing import NamedTuple

from millstream.protocol.wire import I32, Reader, string


class Greeting(NamedTuple):
    cluster_id: str = ""
    """Of the forwarding node; empty if nothing is forwarded."""
    node_id: int = -1
    client: str = ""
    """The client's address and port."""


def encode_greeting(greeting: Greeting) -> bytes:
    return (
        string(greeting.cluster_id, flexible=False)
        + I32.pack(greeting.node_id)
        + string(greeting.client, flexible=False)
    )


def decode_greeting(data: memoryview) -> Greeting:
    reader = Reader(data)
    return Greeting(reader.string(), reader.i32(), reader.string())
