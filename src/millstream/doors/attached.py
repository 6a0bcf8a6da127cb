"""A door on a node: what the node asks of it, and what it is made from."""

from collections.abc import Callable, Mapping
from typing import Protocol

from millstream.config.settings import Settings
from millstream.doors.doors import Doors
from millstream.http.messages import Handler
from millstream.http.routes import Route
from millstream.observability.metrics import Registry
from millstream.runtime.clock import Clock


class AttachedDoor(Protocol):
    @property
    def routes(self) -> Mapping[str, Handler | Route]:
        """For the node's HTTP port; may be empty."""
        ...

    def health(self) -> Mapping[str, object]:
        """Further fields of /health."""
        ...

    async def start(self) -> None:
        """The node serves."""
        ...

    async def stop(self) -> None:
        """The HTTP port has stopped; the node serves until this returns."""
        ...


Attach = Callable[[Doors, Registry, Settings, Clock], AttachedDoor]
