"""Millstream's own request for what is wrong with a node and the logs that it keeps: a disk that takes no writes,
damaged or missing records, files that cannot be used. The request is empty.
"""

import msgspec

from millstream.protocol.wire import MalformedRequest


class LogFault(msgspec.Struct, frozen=True, array_like=True):
    """What a user can read: why, and what to do."""

    topic: str
    partition: int
    reason: str
    advice: str
    mends_itself: bool = False
    """Another replica has what is damaged here, and it is being fetched."""


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
