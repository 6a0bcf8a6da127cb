"""Messages as bytes: one byte for the kind, then MessagePack.

Numbers and fields are the wire format: neither is ever reused, fields are only added at the end, with a default.
"""

from typing import get_args

import msgspec

from millstream.cluster.raft import messages as m
from millstream.cluster.raft.messages import Message

_KINDS: dict[int, type[Message]] = {
    1: m.PreVoteRequest,
    2: m.PreVoteReply,
    3: m.VoteRequest,
    4: m.VoteReply,
    5: m.AppendRequest,
    6: m.AppendReply,
    7: m.AppendRejected,
    8: m.Heartbeat,
    9: m.HeartbeatReply,
    10: m.InstallSnapshot,
    11: m.TimeoutNow,
    12: m.ReadRequest,
    13: m.ReadReply,
}
_NUMBERS = {kind: bytes([number]) for number, kind in _KINDS.items()}
_DECODERS = {number: msgspec.msgpack.Decoder(kind) for number, kind in _KINDS.items()}
_encoder = msgspec.msgpack.Encoder()


class BadMessage(ValueError):
    """Bytes that are no message of this protocol; the connection must not be trusted."""


def encode_message(message: Message) -> bytes:
    return _NUMBERS[type(message)] + _encoder.encode(message)


def decode_message(data: bytes | memoryview) -> Message:
    decoder = _DECODERS.get(data[0]) if data else None
    if decoder is None:
        raise BadMessage(f"unknown kind of quorum message in {len(data)} bytes")
    try:
        return decoder.decode(data[1:])
    except msgspec.DecodeError as error:
        raise BadMessage(f"quorum message of kind {data[0]} cannot be read: {error}") from error


assert set(_NUMBERS) == set(get_args(Message)), "every kind of message has a number"
