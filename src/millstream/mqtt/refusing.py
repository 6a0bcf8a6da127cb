"""Connections beyond the limit: a few at a time hear why they are not taken, in the client's own version."""

import asyncio
from typing import Final

from millstream.mqtt.wire import Wire
from millstream.protocol.mqtt.encoder import encode
from millstream.protocol.mqtt.packets import V3, V5, Connack
from millstream.protocol.mqtt.reasons import Reason

_MOST_AT_ONCE: Final = 100
# With what a wire waits for the client to close.
_SECONDS: Final = 6.0
# How CONNECT begins, up to the version: type, length, name.
_CONNECT: Final = 0x10
_NAMES: Final = (b"\x00\x04MQTT", b"\x00\x06MQIsdp")
_MOST_LENGTH_BYTES: Final = 4


class Refusals:
    """Who is refused costs a place for some seconds; where there is none, the connection is closed without a word."""

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
    """Keeps no more of what a client sends than it takes to answer it."""

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
    """Of the client's protocol; 0 where it speaks another one, None where that cannot be told yet."""
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
