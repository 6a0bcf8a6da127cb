"""Millstream's own request for what is wrong with the logs that a node keeps: damaged or missing records, files that
cannot be used. The request is empty.
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


_decoder = msgspec.msgpack.Decoder(tuple[LogFault, ...])
encode_log_faults = msgspec.msgpack.Encoder().encode


def decode_log_faults_request(data: memoryview) -> None:
    if len(data):
        raise MalformedRequest("a request for what is wrong with logs is empty")


def decode_log_faults(data: bytes | memoryview) -> tuple[LogFault, ...]:
    return _decoder.decode(data)
