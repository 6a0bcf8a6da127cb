"""The first words of a connection on which a node is to answer for itself only, and for whom its requests are.

A node that forwards a client's requests says which client; our own tools and nodes that want a certain node say nothing
more. Where nothing is forwarded the words change nothing.
"""

from typing import NamedTuple

from millstream.protocol.wire import I32, Reader, string


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


def decode_greeting(data: memoryview) -> Greeting:
    reader = Reader(data)
    return Greeting(reader.string(), reader.i32(), reader.string())
