"""What all clients of a door share."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from millstream.doors import Doors
from millstream.doors.caller import ANONYMOUS, Caller, Principal
from millstream.mqtt.attending import Attending
from millstream.mqtt.limits import MqttLimits
from millstream.mqtt.places import Places
from millstream.mqtt.publishing import Publishing
from millstream.mqtt.redirect import Redirects
from millstream.mqtt.retained import Retained
from millstream.mqtt.share_groups import ShareGroups
from millstream.mqtt.statistics import Statistics
from millstream.mqtt.subscribers import Subscribers
from millstream.protocol.mqtt.decoder import NameCache
from millstream.protocol.mqtt.packets import Connect
from millstream.protocol.mqtt.reasons import Reason, Violation


class Authenticator(Protocol):
    """Who a client is. A Violation refuses it with its reason."""

    async def authenticate(self, connect: Connect, host: str) -> Principal: ...


class Anyone:
    """Lets everyone in, by no method in particular."""

    async def authenticate(self, connect: Connect, host: str) -> Principal:  # noqa: ARG002 - it asks nothing
        method = connect.properties.authentication_method
        if method is not None:
            raise Violation(
                Reason.BAD_AUTHENTICATION_METHOD, f"the authentication method {method!r} is not known"
            )
        return ANONYMOUS


class Shared(msgspec.Struct, frozen=True, eq=False):
    doors: Doors
    limits: MqttLimits
    publishing: Publishing
    places: Places
    subscribers: Subscribers
    retained: Retained
    attending: Attending
    share_groups: ShareGroups
    authenticator: Authenticator
    names: NameCache
    now_ms: Callable[[], int]
    new_client_id: Callable[[], str]
    node: str
    """This node and its start."""
    own_caller: Caller
    statistics: Statistics
    redirects: Redirects
