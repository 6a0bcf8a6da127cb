"""What a client requests in CONNECT and SUBSCRIBE, and what the server grants."""

from typing import Final

from millstream.mqtt.limits import MqttLimits
from millstream.mqtt.subscriptions import Subscription
from millstream.protocol.mqtt.packets import V3, Connect, Filter, Subscribe
from millstream.protocol.mqtt.properties import ConnackProperties
from millstream.protocol.mqtt.reasons import Reason
from millstream.protocol.mqtt.topics import is_filter, shared

_FOR_EVER: Final = 0xFFFF_FFFF


def session_expiry_s(connect: Connect, limits: MqttLimits) -> int:
    """Capped by the server's limit; a session of 3.1.1 that is not clean asks for no end."""
    if connect.version == V3:
        wanted = 0 if connect.clean_start else _FOR_EVER
    else:
        wanted = connect.properties.session_expiry_s or 0
    return min(wanted, limits.max_session_expiry_s)


def keep_alive_s(connect: Connect, limits: MqttLimits) -> int:
    limit = limits.server_keep_alive_s
    return limit if limit and not 0 < connect.keep_alive_s <= limit else connect.keep_alive_s


def granted_properties(
    connect: Connect, limits: MqttLimits, assigned_id: str | None, authentication_data: bytes | None
) -> ConnackProperties:
    """The granted values that differ from the request, and those that the client could not know."""
    expiry = session_expiry_s(connect, limits)
    keep_alive = keep_alive_s(connect, limits)
    return ConnackProperties(
        session_expiry_s=None if expiry == (connect.properties.session_expiry_s or 0) else expiry,
        receive_maximum=limits.receive_maximum,
        maximum_packet_size=limits.max_packet_bytes,
        assigned_client_identifier=assigned_id,
        topic_alias_maximum=limits.topic_alias_maximum or None,
        server_keep_alive_s=None if keep_alive == connect.keep_alive_s else keep_alive,
        authentication_method=connect.properties.authentication_method,
        authentication_data=authentication_data,
    )


def wanted_filters(packet: Subscribe) -> tuple[Subscription | int, ...]:
    """For each filter the subscription, or the reason of the refusal."""
    identifiers = packet.properties.subscription_identifiers
    return tuple(_checked(each, identifiers[0] if identifiers else 0) for each in packet.filters)


def _checked(wanted: Filter, identifier: int) -> Subscription | int:
    """The subscription for a valid filter, or the reason of the refusal."""
    try:
        is_valid = shared(wanted.filter) is not None or is_filter(wanted.filter)
    except ValueError:
        is_valid = False
    if not is_valid:
        return Reason.TOPIC_FILTER_INVALID
    return Subscription(
        wanted.filter,
        wanted.qos,
        wanted.no_local,
        wanted.retain_as_published,
        wanted.retain_handling,
        identifier,
    )
