"""An address at which a node is reached: its name, and which APIs it takes there."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from millstream.broker.server.connection import Connection
from millstream.broker.server.relay import Relay

NewRelay = Callable[["Connection"], "Relay | None"]


class Listener(msgspec.Struct, frozen=True):
    name: str
    apis: frozenset[int]
    """The keys of the APIs that are served to those who connect there."""
    trusts_nodes: bool = False
    """Whoever connects there may be another node, and is believed what only nodes may say."""
    option: str = "--listen"
    """How a user chooses the address."""
    new_relay: NewRelay | None = None
    """Where this node may answer for others to those who connect there."""
