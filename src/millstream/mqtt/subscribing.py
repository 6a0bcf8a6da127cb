"""SUBSCRIBE and UNSUBSCRIBE: answered when in force; retained messages follow the answer."""

import asyncio
from typing import TYPE_CHECKING, Final

from millstream.doors import Operation, Permission, Resource
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
            await _begin(client, list(wanted.values()))
        except KafkaError as error:
            failure = failure_of(error)
            if not failure.is_final:
                client.close(failure.reason, failure.text)
                return []
            reasons = [max(reason, failure.reason) for reason in reasons]
            wanted = {}
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


async def _begin(client: "Client", wanted: list[Subscription]) -> None:
    """When this returns, every message acknowledged to its publisher from now on reaches the client."""
    door = client.shared
    rules = door.publishing.rules
    shares = {each.filter: share for each in wanted if (share := shared(each.filter)) is not None}
    for share in shares.values():
        await door.share_groups.open(share.group, share.filter)
    own = [each.filter for each in wanted if each.filter not in shares]
    topics = dict.fromkeys(topic for text in own for topic in rules.topics_for(text))
    places = partitions_of(door.places, list(topics))
    tails = await asyncio.gather(
        *(door.subscribers.follow(place) for place in places), door.retained.catch_up()
    )
    fresh = [place for place in places if place not in client.reading.places]
    client.reading.add(fresh)
    if client.machine.session_expiry_s and client.link is not None:
        positions = {tail.place: tail.position for tail in tails if tail is not None}
        await client.link.ask(
            Subscribe(
                client.client_id,
                client.epoch,
                tuple((each.filter, stored_subscription(each)) for each in wanted),
                tuple(
                    Position(place.topic, place.partition, positions[place], 0, client.reading.places[place])
                    for place in fresh
                ),
            )
        )


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
