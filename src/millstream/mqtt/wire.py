"""What TCP and WebSocket connections have in common, and refusing connections beyond the limit."""

import asyncio
from typing import Final, Protocol

from millstream.protocol.mqtt.encoder import encode
from millstream.protocol.mqtt.packets import V3, V5, Connack
from millstream.protocol.mqtt.reasons import Reason

_MOST_AT_ONCE: Final = 100
# More than a wire waits for the client to close.
_SECONDS: Final = 6.0
# CONNECT up to the version: type, length, name.
_CONNECT: Final = 0x10
_NAMES: Final = (b"\x00\x04MQTT", b"\x00\x06MQIsdp")
_MOST_LENGTH_BYTES: Final = 4


class Wire(Protocol):
    host: str
    """The address that the client came from, without its port."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None:
        """Close once everything written is sent."""
        ...

    def abort(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class WireUser(Protocol):
    def data(self, data: bytes) -> None: ...

    def lost(self) -> None: ...

    def blocked(self, is_blocked: bool) -> None:
        """Whether more was written than the client has taken."""
        ...


class Refusals:
    """A refused client takes a place for some seconds; when all are taken, connections are closed without an answer."""

    def __init__(self) -> None:
        self._count = 0

    def refuse(self, wire: Wire) -> "Refusal | None":
        if self._count >= _MOST_AT_ONCE:
            return None
        self._count += 1
        asyncio.get_running_loop().call_later(_SECONDS, self._over, wire)
        return Refusal(wire)

    def _over(self, wire: Wire) -> None:
        self._count -= 1
        wire.abort()


class Refusal:
    """Answers CONNECT in the client's protocol version, and keeps no more of its bytes than that takes."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._head = b""

    def data(self, data: bytes) -> None:
        self._head += data[: 1 + _MOST_LENGTH_BYTES + len(_NAMES[-1]) + 1 - len(self._head)]
        version = _version(self._head)
        if version is None:
            return
        if version:
            self._wire.write(encode(Connack(Reason.QUOTA_EXCEEDED), version))
        self._wire.close()

    def lost(self) -> None: ...

    def blocked(self, is_blocked: bool) -> None: ...


def _version(head: bytes) -> int | None:
    """The MQTT version; 0 for another protocol, None while more bytes are needed."""
    if head[:1] and head[0] != _CONNECT:
        return 0
    length = next((at for at in range(1, len(head)) if head[at] < 0x80), None)
    if length is None:
        return 0 if len(head) > _MOST_LENGTH_BYTES else None
    rest = head[length + 1 :]
    for name in _NAMES:
        if rest.startswith(name) and len(rest) > len(name):
            return V5 if rest[len(name)] == V5 else V3
    return None if any(name.startswith(rest[: len(name)]) for name in _NAMES) else 0
