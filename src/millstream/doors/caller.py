"""Who asks. Every path to the node carries it: a Kafka request, an HTTP request, an MQTT session, another node."""

import msgspec


class Principal(msgspec.Struct, frozen=True):
    """As Kafka writes it: `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


class Caller(msgspec.Struct, frozen=True):
    principal: Principal = ANONYMOUS
    client_id: str = ""
    host: str = ""
    """The address that the client came from, without its port."""
    listener: str = ""
    """The name of the listener that it came to."""
    expires_at: float | None = None
    """When its login ends, in seconds since 1970; None where it does not."""


NODE = Caller(Principal("Node", "cluster"), "millstream")
"""What nodes do on their own account. No client can log in as one of this kind; every authoriser lets it do all."""
