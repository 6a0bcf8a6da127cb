"""Subscriptions: their stored form, and an index of a node's sessions by filter, looked up once for each message.

A session whose filters overlap gets one copy, with the highest QoS and the identifiers of all of them; or, if the
settings say so, a copy for each.
"""

from collections.abc import Hashable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from millstream.doors.mqtt_sessions import StoredSubscription
from millstream.protocol.mqtt.packets import RetainHandling
from millstream.protocol.mqtt.topic_tree import TopicTree

S = TypeVar("S", bound=Hashable)

# A topic with ten thousand subscribers counts as ten thousand.
_MOST_KEPT_MATCHES: Final = 200_000
_LONGEST_KEPT: Final = 512
# Bits as on the wire.
_NO_LOCAL: Final = 0x04
_AS_PUBLISHED: Final = 0x08


class Subscription(msgspec.Struct, frozen=True, gc=False):
    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: RetainHandling = RetainHandling.ALWAYS
    identifier: int = 0
    """0 where the client gave none."""


class Granted(NamedTuple):
    """The combined options of the filters that match, or those of one of them."""

    qos: int
    retain_as_published: bool
    identifiers: tuple[int, ...]
    others: "tuple[Granted, ...]" = ()
    """One for each further copy."""


class Match(NamedTuple, Generic[S]):
    subscriber: S
    granted: Granted
    to_publisher: Granted | None
    """Used if the subscriber published the message itself; None if all matching filters say no local."""


def granted(subscriptions: Iterable[Subscription]) -> Granted | None:
    """One copy for all; None for no subscriptions."""
    qos, as_published = -1, False
    identifiers: list[int] = []
    for each in subscriptions:
        qos = max(qos, each.qos)
        as_published = as_published or each.retain_as_published
        if each.identifier:
            identifiers.append(each.identifier)
    return None if qos < 0 else Granted(qos, as_published, tuple(identifiers))


def granted_each(subscriptions: Iterable[Subscription]) -> Granted | None:
    """A copy for each, the highest QoS first."""
    each = [found for one in subscriptions if (found := granted((one,))) is not None]
    if not each:
        return None
    first, *others = sorted(each, key=lambda one: -one.qos)
    return first._replace(others=tuple(others))


class SubscriptionIndex(Generic[S]):
    def __init__(self, *, copies: bool = False) -> None:
        """`copies`: deliver one for each matching filter."""
        self._together = granted_each if copies else granted
        self._tree: TopicTree[S, Subscription] = TopicTree()
        self._kept: dict[str, list[Match[S]]] = {}
        self._kept_matches = 0

    @property
    def count(self) -> int:
        return self._tree.count

    def add(self, subscriber: S, subscription: Subscription) -> Subscription | None:
        """Returns the subscription that it replaces, if any."""
        self._forget()
        return self._tree.put(subscription.filter, subscriber, subscription)

    def remove(self, subscriber: S, text: str) -> Subscription | None:
        self._forget()
        return self._tree.remove(text, subscriber)

    def find(self, topic: str) -> list[Match[S]]:
        """Do not change the list: it is cached."""
        found = self._kept.get(topic)
        return self._find(topic) if found is None else found

    def _find(self, topic: str) -> list[Match[S]]:
        by_subscriber: dict[S, list[Subscription]] = {}
        for holders in self._tree.match(topic):
            for subscriber, subscription in holders.items():
                by_subscriber.setdefault(subscriber, []).append(subscription)
        found = [self._match(subscriber, held) for subscriber, held in by_subscriber.items()]
        if len(topic) <= _LONGEST_KEPT and len(found) < _MOST_KEPT_MATCHES:
            if self._kept_matches + len(found) > _MOST_KEPT_MATCHES:
                self._forget()
            self._kept[topic] = found
            self._kept_matches += 1 + len(found)
        return found

    def _forget(self) -> None:
        self._kept.clear()
        self._kept_matches = 0

    def _match(self, subscriber: S, held: list[Subscription]) -> Match[S]:
        together = self._together
        everything = together(held)
        assert everything is not None
        if not any(each.no_local for each in held):
            return Match(subscriber, everything, everything)
        return Match(subscriber, everything, together(each for each in held if not each.no_local))


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
