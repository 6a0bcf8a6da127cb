"""Framing of messages between members: checksum, cluster id, and long messages in parts.

A part is the CRC-32C of the rest, the cluster's id, the message's number on this connection, the part's number, the
number of parts, and its bytes. Parts of one message come in order; other messages may come between them, so that a long
snapshot does not silence a leader.
"""

from collections.abc import Iterator
from struct import Struct

from millstream.cluster.raft.codec import BadMessage, decode_message, encode_message
from millstream.cluster.raft.messages import Message
from millstream.protocol.checksum import crc32c

PART_BYTES = 256 << 10
MAX_MESSAGE_BYTES = 1 << 30

_CHECKSUM = Struct(">I")
_HEADER = Struct(">22sIII")
_NUMBERS = 1 << 32
_MAX_OPEN = 4


class WrongCluster(BadMessage):
    """The sender belongs to another cluster."""


def encode_parts(cluster_id: str, number: int, message: Message) -> Iterator[bytes]:
    """The parts of `message`; its `number` on this connection identifies parts that belong together."""
    data = encode_message(message)
    count = max(1, -(-len(data) // PART_BYTES))
    for part in range(count):
        header = _HEADER.pack(cluster_id.encode("ascii"), number % _NUMBERS, part, count)
        body = data[part * PART_BYTES : (part + 1) * PART_BYTES]
        yield b"".join((_CHECKSUM.pack(crc32c(body, crc32c(header))), header, body))


class Assembler:
    """Assembles one connection's parts into messages."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[int, list[bytes]] = {}

    def add(self, data: bytes | memoryview, cluster_id: str) -> tuple[str, Message] | None:
        """The message that this part completes, and its sender's cluster.

        BadMessage for what no member sends, WrongCluster for another cluster's; an empty `cluster_id` takes any.
        """
        if len(data) < _CHECKSUM.size + _HEADER.size:
            raise BadMessage(f"a quorum message of {len(data)} bytes is too short")
        if crc32c(data[_CHECKSUM.size :]) != _CHECKSUM.unpack_from(data)[0]:
            raise BadMessage("the checksum of a quorum message does not match")
        raw_id, number, part, count = _HEADER.unpack_from(data, _CHECKSUM.size)
        sender = raw_id.rstrip(b"\0").decode("ascii", "replace")
        if cluster_id and sender != cluster_id:
            raise WrongCluster(f"a quorum message of cluster {sender!r}, this is {cluster_id!r}")
        body = data[_CHECKSUM.size + _HEADER.size :]
        if count == 1:
            return sender, decode_message(body)
        parts = self._collect(number, part, count, bytes(body))
        if len(parts) < count:
            return None
        del self._open[number]
        return sender, decode_message(b"".join(parts))

    def _collect(self, number: int, part: int, count: int, body: bytes) -> list[bytes]:
        parts = self._open.setdefault(number, [])
        if part != len(parts) or part >= count:
            raise BadMessage(f"part {part} of {count} of a quorum message, {len(parts)} came before")
        if len(self._open) > _MAX_OPEN or count > MAX_MESSAGE_BYTES // PART_BYTES:
            raise BadMessage(
                f"too much of unfinished quorum messages: {count} parts of one, {len(self._open)} open"
            )
        parts.append(body)
        return parts
