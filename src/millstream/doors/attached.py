"""The interface of a door that a node starts and stops, and of the function that makes it."""

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
        """Routes for the node's HTTP port; may be empty."""
        ...

    def health(self) -> Mapping[str, object]:
        """Further fields of /health."""
        ...

    async def start(self) -> None:
        """Called when the node serves."""
        ...

    async def stop(self) -> None:
        """Called when the HTTP port has stopped. The node serves until this returns."""
        ...


Attach = Callable[[Doors, Registry, Settings, Clock], AttachedDoor]
