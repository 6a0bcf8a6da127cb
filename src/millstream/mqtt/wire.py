"""The bytes of one client: what a TCP or WebSocket connection has in common for those who use it."""

from typing import Protocol


class Wire(Protocol):
    host: str
    """The address that the client came from, without its port."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None:
        """When what was written is sent."""
        ...

    def abort(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class WireUser(Protocol):
    def data(self, data: bytes) -> None: ...

    def lost(self) -> None: ...

    def blocked(self, is_blocked: bool) -> None:
        """More was written than the client has taken; or no longer."""
        ...
