"""SUBSCRIBE and UNSUBSCRIBE: answered when in force; retained messages follow the answer."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from millstream.doors import Operation, Permission, Place, Resource
from millstream.doors.mqtt_sessions import Position, Subscribe, Unsubscribe
from millstream.mqtt.outbound import Offer
from millstream.mqtt.outgoing import Delivery
from millstream.mqtt.places import partitions_of
from millstream.mqtt.queue_clients import consume, leave
from millstream.mqtt.queue_topics import PREFIX
from millstream.mqtt.subscriptions import Subscription, stored_subscription
from millstream.mqtt.wants import WantSubscribe, WantUnsubscribe, failure_of
from millstream.observability.logs import get_logger
from millstream.protocol.errors import KafkaError
from millstream.protocol.mqtt.packets import RetainHandling
from millstream.protocol.mqtt.reasons import Reason
from millstream.protocol.mqtt.topics import shared

if TYPE_CHECKING:
    from millstream.mqtt.client import Client

log = get_logger("millstream.mqtt")

_PAUSE_SECONDS: Final = 0.5


async def subscribe(client: "Client", want: WantSubscribe) -> None:
    await client.sending.all_sent()
    with client.shared.subscribers.joining():
        retained_for = await _subscribe(client, want)
    if not client.is_open:
        # The client left meanwhile, so nobody else removes what was set up since.
        _abandon(client, want)
    for subscription in retained_for:
        await _give_retained(client, subscription)
    client.flush()


async def _subscribe(client: "Client", want: WantSubscribe) -> list[Subscription]:
    """Returns the new subscriptions for which the client gets retained messages."""
    try:
        reasons = [await _granted(client, each, want) for each in want.filters]
    except KafkaError as error:
        failure = failure_of(error)
        client.close(failure.reason, failure.text)
        return []
    wanted = {
        each.filter: each
        for each, reason in zip(want.filters, reasons, strict=True)
        if isinstance(each, Subscription)
        and reason < Reason.UNSPECIFIED_ERROR
        and each.filter not in client.queues
    }
    new = wanted.keys() - client.subscriptions.keys()
    if wanted:
        try:
            refused = await _begin(client, list(wanted.values()))
        except KafkaError as error:
            failure = failure_of(error)
            if not failure.is_final:
                client.close(failure.reason, failure.text)
                return []
            reasons = [max(reason, failure.reason) for reason in reasons]
            wanted = {}
        else:
            reasons = [
                refused.get(each.filter, reason) if isinstance(each, Subscription) else reason
                for each, reason in zip(want.filters, reasons, strict=True)
            ]
            wanted = {text: each for text, each in wanted.items() if text not in refused}
    if not client.is_open:
        return []
    for subscription in wanted.values():
        client.subscriptions[subscription.filter] = subscription
        if shared(subscription.filter) is None:
            client.reading.subscribe(subscription)
            client.shared.subscribers.index.add(client, subscription)
    client.look_for_partitions(wanted)
    client.machine.subscribed(want.packet_id, reasons, client.shared.now_ms())
    for each in want.filters:
        if isinstance(each, Subscription) and each.filter in client.queues:
            client.queues[each.filter].join(client, each)
    given = []
    for subscription in wanted.values():
        handling = subscription.retain_handling
        if shared(subscription.filter) is not None:
            # SUBACK does not wait for the group.
            client.spawn(join_group(client, subscription))
        elif handling is RetainHandling.ALWAYS or (
            handling is RetainHandling.NEW_ONLY and subscription.filter in new
        ):
            given.append(subscription)
    return given


def _abandon(client: "Client", want: WantSubscribe) -> None:
    for each in want.filters:
        if isinstance(each, Subscription) and (share := shared(each.filter)) is not None:
            client.shared.share_groups.leave(share.group, share.filter, client)
    for text in list(client.queues):
        leave(client, text)


async def _granted(client: "Client", wanted: Subscription | int, want: WantSubscribe) -> int:
    if isinstance(wanted, Subscription) and wanted.filter.startswith(PREFIX):
        return await consume(client, wanted, want.user_properties)
    return _allowed(client, wanted)


def _allowed(client: "Client", wanted: Subscription | int) -> int:
    """The granted QoS, or the reason of the refusal."""
    if not isinstance(wanted, Subscription):
        return wanted
    door = client.shared
    if wanted.filter in door.limits.refused_filters:
        return Reason.UNSPECIFIED_ERROR
    if (
        wanted.filter not in client.subscriptions
        and len(client.subscriptions) >= door.limits.max_subscriptions
    ):
        return Reason.QUOTA_EXCEEDED
    share = shared(wanted.filter)
    for topic in door.publishing.rules.topics_for(wanted.filter if share is None else share.filter):
        permission = Permission(Operation.READ, Resource.TOPIC, topic)
        if not door.doors.authoriser.allows(client.caller, permission):
            return Reason.NOT_AUTHORIZED
    return wanted.qos


async def _begin(client: "Client", wanted: list[Subscription]) -> dict[str, Reason]:
    """When this returns, every message acknowledged to its publisher from now on reaches the client.

    Returns the filters that are refused, because a partition of their topics has no leader that tells where it ends.
    KafkaError where nothing can be granted: the client connects and asks again, which few do that are refused.
    """
    door = client.shared
    rules = door.publishing.rules
    shares = {each.filter: share for each in wanted if (share := shared(each.filter)) is not None}
    for share in shares.values():
        await door.share_groups.open(share.group, share.filter)
    own = [each.filter for each in wanted if each.filter not in shares]
    topics = {text: rules.topics_for(text) for text in own}
    places = partitions_of(door.places, list(dict.fromkeys(chain.from_iterable(topics.values()))))
    failed, _ = await asyncio.gather(door.subscribers.follow_all(places), door.retained.catch_up())
    refused = _refused(client, topics, failed)
    if failed and len(refused) == len(wanted):
        raise next(iter(failed.values()))
    wanted = [each for each in wanted if each.filter not in refused]
    served = set(chain.from_iterable(topics[each.filter] for each in wanted if each.filter in topics))
    fresh = [place for place in places if place.topic in served and place not in client.reading.places]
    positions = [(place, door.subscribers.position(place)) for place in fresh]
    client.reading.add(fresh)
    if client.machine.session_expiry_s and client.link is not None:
        await client.link.ask(
            Subscribe(
                client.client_id,
                client.epoch,
                tuple((each.filter, stored_subscription(each)) for each in wanted),
                tuple(
                    Position(place.topic, place.partition, offset, 0, client.reading.places[place])
                    for place, offset in positions
                    if offset is not None
                ),
            )
        )
    return refused


def _refused(
    client: "Client", topics: Mapping[str, Sequence[str]], failed: Mapping[Place, KafkaError]
) -> dict[str, Reason]:
    by_topic = {place.topic: (place, error) for place, error in failed.items()}
    refused = {}
    for text, names in topics.items():
        for place, error in (by_topic[name] for name in names if name in by_topic):
            failure = failure_of(error)
            refused[text] = failure.reason if failure.is_final else Reason.IMPLEMENTATION_SPECIFIC_ERROR
            log.warning(
                "subscription refused",
                client_id=client.client_id,
                filter=text,
                place=str(place),
                error=error.message,
            )
            break
    return refused


async def join_group(client: "Client", subscription: Subscription) -> None:
    """Join the group of a shared subscription; retried while the group cannot be opened."""
    text = subscription.filter
    share = shared(text)
    assert share is not None
    groups = client.shared.share_groups

    def is_wanted() -> bool:
        return client.is_open and client.subscriptions.get(text) is subscription

    while is_wanted():
        try:
            group = await groups.open(share.group, share.filter)
        except KafkaError as error:
            log.info("shared subscription waits", client_id=client.client_id, error=error.message)
            await asyncio.sleep(_PAUSE_SECONDS)
            continue
        if is_wanted():
            client.groups[text] = group
            group.join(client, subscription)
        else:
            groups.leave(share.group, share.filter, client)
        return


async def _give_retained(client: "Client", subscription: Subscription) -> None:
    """Send the retained messages, waiting for room if there are many."""
    door = client.shared
    identifiers = (subscription.identifier,) if subscription.identifier else ()
    async for some in door.retained.find(subscription.filter, door.now_ms()):
        for outgoing in some:
            qos = min(outgoing.message.qos, subscription.qos)
            delivery = Delivery(outgoing, qos, True, identifiers)
            while client.machine.deliver(delivery, door.now_ms()) is Offer.FULL:
                client.flush()
                if not client.is_open:
                    return
                await asyncio.sleep(0.01)
        client.flush()


async def unsubscribe(client: "Client", want: WantUnsubscribe) -> None:
    held = [text in client.subscriptions or text in client.queues for text in want.filters]
    try:
        if client.machine.session_expiry_s and client.link is not None:
            await client.link.ask(Unsubscribe(client.client_id, client.epoch, want.filters))
    except KafkaError as error:
        failure = failure_of(error)
        client.close(failure.reason, failure.text)
        return
    for text in want.filters:
        leave(client, text)
        if client.subscriptions.pop(text, None) is None:
            continue
        if (share := shared(text)) is not None:
            client.groups.pop(text, None)
            client.shared.share_groups.leave(share.group, share.filter, client)
        else:
            client.reading.unsubscribe(text)
            client.shared.subscribers.index.remove(client, text)
    codes = [Reason.SUCCESS if each else Reason.NO_SUBSCRIPTION_EXISTED for each in held]
    client.machine.unsubscribed(want.packet_id, codes, client.shared.now_ms())
    client.flush()
