"""An application message: what a client published, on its way into the log or out of it."""

from typing import Final

import msgspec

from millstream.protocol.mqtt.properties import PublishProperties

NEVER: Final = 0
"""As a time when a message expires."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """`properties` have no alias, no subscription identifiers and no expiry: those are of one connection or moment."""

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    properties: PublishProperties = PublishProperties()
    expires_ms: int = NEVER
    publisher: str = ""
    """The client id of who sent it; empty where it came through another door."""
    expires_in_s: int = 0
    """Of a will, whose time begins when it is appended; 0 for all others."""

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_ms != NEVER and self.expires_ms <= now_ms

    def seconds_left(self, now_ms: int) -> int | None:
        """What a subscriber is told of the time that is left, rounded up so that it is never 0."""
        return None if self.expires_ms == NEVER else max(1, -((now_ms - self.expires_ms) // 1000))
