"""Millstream's own request for the faults of a node and its logs: a disk that refuses writes, damaged or missing
records, unusable files. The request is empty.
"""

import msgspec

from millstream.protocol.wire import MalformedRequest


class LogFault(msgspec.Struct, frozen=True, array_like=True):
    """A fault of one log, with its reason and remedy in words."""

    topic: str
    partition: int
    reason: str
    advice: str
    mends_itself: bool = False
    """The damaged records are being fetched from another replica."""


class NodeFault(msgspec.Struct, frozen=True, array_like=True):
    """Why a node refuses writes, and what to do."""

    node_id: int
    reason: str
    advice: str


class Faults(msgspec.Struct, frozen=True, array_like=True):
    logs: tuple[LogFault, ...] = ()
    node: NodeFault | None = None


_decoder = msgspec.msgpack.Decoder(Faults)
encode_log_faults = msgspec.msgpack.Encoder().encode


def decode_log_faults_request(data: memoryview) -> None:
    if len(data):
        raise MalformedRequest("a request for what is wrong with a node is empty")


def decode_log_faults(data: bytes | memoryview) -> Faults:
    return _decoder.decode(data)
