"""The caller of a request. Every path to the node has one: Kafka and HTTP requests, MQTT sessions, other nodes."""

import msgspec


class Principal(msgspec.Struct, frozen=True):
    """Written as in Kafka: `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


class Caller(msgspec.Struct, frozen=True):
    principal: Principal = ANONYMOUS
    client_id: str = ""
    host: str = ""
    """The client's address, without the port."""
    listener: str = ""
    """The name of the listener that accepted the client."""
    expires_at: float | None = None
    """When the login ends, in seconds since 1970; None if it does not end."""


NODE = Caller(Principal("Node", "cluster"), "millstream")
"""For actions of the nodes themselves. No client can log in with this kind; every authoriser allows it everything."""
