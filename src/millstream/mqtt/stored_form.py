"""Subscriptions as the coordinator of a session keeps them."""

from typing import Final

from millstream.coordinator.mqtt_sessions.records import StoredSubscription
from millstream.mqtt.subscriptions import Subscription
from millstream.protocol.mqtt.packets import RetainHandling

# As on the wire.
_NO_LOCAL: Final = 0x04
_AS_PUBLISHED: Final = 0x08


def subscription_of(text: str, stored: StoredSubscription) -> Subscription:
    options = stored.options
    return Subscription(
        text,
        stored.qos,
        bool(options & _NO_LOCAL),
        bool(options & _AS_PUBLISHED),
        RetainHandling(options >> 4 & 3),
        stored.identifier,
    )


def stored_subscription(subscription: Subscription) -> StoredSubscription:
    options = (
        subscription.no_local << 2 | subscription.retain_as_published << 3 | subscription.retain_handling << 4
    )
    return StoredSubscription(subscription.qos, options, subscription.identifier)
