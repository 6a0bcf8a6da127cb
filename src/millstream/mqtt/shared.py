"""The parts that all clients of a door use."""

from collections.abc import Callable

import msgspec

from millstream.doors import Doors
from millstream.doors.caller import Caller
from millstream.mqtt.attending import Attending
from millstream.mqtt.authenticating import Authenticator
from millstream.mqtt.limits import MqttLimits
from millstream.mqtt.places import Places
from millstream.mqtt.publishing import Publishing
from millstream.mqtt.queue_clients import Redirects
from millstream.mqtt.retained import Retained
from millstream.mqtt.share_groups import ShareGroups
from millstream.mqtt.statistics import Statistics
from millstream.mqtt.subscribers import Subscribers
from millstream.mqtt.unwanted import Unwanted
from millstream.observability.repeats import LogThrottle
from millstream.protocol.mqtt.decoder import NameCache


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
    """Names this node and this start of it."""
    own_caller: Caller
    statistics: Statistics
    redirects: Redirects
    unwanted: Unwanted | None
    """None if PUBACK does not report missing subscribers."""
    broken: LogThrottle[tuple[str, int]]
    """For log lines on protocol violations, by host and reason."""
