"""From CONNECT to CONNACK: authenticate the client and open its session."""

import asyncio
from typing import TYPE_CHECKING, Final

from millstream.doors import Place
from millstream.doors.caller import Caller
from millstream.doors.mqtt_sessions import (
    Disown,
    FlightStage,
    OpenSession,
    SessionOpened,
    StoredFlight,
    StoredWill,
)
from millstream.mqtt.connection import Opened, State
from millstream.mqtt.outbound import InFlight, Stage
from millstream.mqtt.outgoing import Delivery, Outgoing
from millstream.mqtt.places import partitions_of
from millstream.mqtt.record_form import NEVER, Message
from millstream.mqtt.session_link import SessionLink
from millstream.mqtt.subscribing import join_group
from millstream.mqtt.subscriptions import subscription_of
from millstream.mqtt.wants import WantOpen, failure_of
from millstream.protocol.errors import ErrorCode, KafkaError, NotDone
from millstream.protocol.mqtt.packets import Connect
from millstream.protocol.mqtt.properties import PublishProperties
from millstream.protocol.mqtt.reasons import Reason, Violation
from millstream.protocol.mqtt.topics import shared as is_shared

if TYPE_CHECKING:
    from millstream.mqtt.client import Client

# Shorter than the connect timeout, so that the client gets an answer.
_EARLIER_SECONDS: Final = 5.0


async def open_session(client: "Client", want: WantOpen) -> None:
    machine, shared = client.machine, client.shared
    moved_to = shared.limits.moved_to
    if moved_to is not None:
        machine.refuse(Reason.SERVER_MOVED, f"clients of this node are served at {moved_to}", moved_to)
        client.flush()
        return
    try:
        authenticated = await client.exchange.begin(want.connect)
        client.caller = Caller(authenticated.principal, want.client_id, client.wire.host, "mqtt")
        request = await _request(client, want)
        await _take_turn(client)
        opened = await client.ask(request)
    except Violation as violation:
        machine.refuse(violation.reason, violation.message)
        client.flush()
        return
    except KafkaError as error:
        failure = failure_of(error)
        machine.refuse(failure.reason if failure.is_final else Reason.SERVER_UNAVAILABLE, failure.text)
        client.flush()
        if shared.attending.clients.get(client.client_id) is client:
            if not isinstance(error, NotDone):
                # The session may be open. This node's signs of life would keep it forever, without a connection.
                await client.tell_patiently(Disown(client.client_id, shared.node))
            shared.attending.forget(client)
        return
    client.epoch = opened.epoch
    link = SessionLink(
        shared.doors.coordinators,
        shared.publishing,
        client.caller,
        client.client_id,
        opened.epoch,
        opened.shard,
        max((flight.number for _, flight in opened.in_flight), default=0),
        client,
    )
    shared.attending.add(client, opened.shard)
    try:
        in_flight = await _in_flight(client, opened)
    except KafkaError as error:
        machine.refuse(Reason.SERVER_UNAVAILABLE, error.message)
        client.flush()
    if machine.state is State.CLOSED:
        # The client left meanwhile, or is refused. If it has reconnected, the new connection owns the session.
        await client.tell_end(
            link, send_will=False, expiry_s=machine.session_expiry_s, positions=(), in_flight=opened.in_flight
        )
        return
    client.link = link
    machine.opened(Opened(opened.present, opened.received, in_flight, authenticated.data), shared.now_ms())
    _subscribe_again(client, opened)
    client.opened()
    client.flush()
    client.reading.go_on()


async def _take_turn(client: "Client") -> None:
    """Wait until an earlier connection of the same client id has ended here, and the coordinator knows.

    A node opens one session at a time for each client id; of the clients that wait, only the newest goes on.
    """
    attending = client.shared.attending
    clients, waiting = attending.clients, attending.waiting
    loop = asyncio.get_running_loop()
    until = loop.time() + _EARLIER_SECONDS
    if (older := waiting.get(client.client_id)) is not None:
        older.taken_over()
    waiting[client.client_id] = client
    ended = None
    try:
        while (earlier := clients.get(client.client_id)) is not None and earlier is not ended:
            earlier.taken_over()
            await asyncio.wait({earlier.ended}, timeout=until - loop.time())
            if not earlier.ended.done() or client.machine.state is State.CLOSED:
                raise KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE, "the client's last connection is still open"
                )
            ended = earlier
    finally:
        if waiting.get(client.client_id) is client:
            del waiting[client.client_id]
    clients[client.client_id] = client


async def _request(client: "Client", want: WantOpen) -> OpenSession:
    return OpenSession(
        client.client_id,
        client.shared.node,
        want.connect.clean_start,
        client.machine.session_expiry_s,
        await _will(client, want.connect),
    )


async def _will(client: "Client", connect: Connect) -> StoredWill | None:
    will = connect.will
    if will is None:
        return None
    asked = will.properties
    message = Message(
        will.topic,
        will.payload,
        will.qos,
        will.retain,
        PublishProperties(
            user_properties=asked.user_properties,
            payload_format=asked.payload_format,
            content_type=asked.content_type,
            response_topic=asked.response_topic,
            correlation_data=asked.correlation_data,
        ),
        NEVER,
        client.client_id,
        asked.message_expiry_s or 0,
    )
    return StoredWill(await client.shared.publishing.kept(message), asked.will_delay_s)


def _subscribe_again(client: "Client", opened: SessionOpened) -> None:
    shared = client.shared
    topics: dict[str, None] = {}
    for text, stored in opened.subscriptions:
        subscription = subscription_of(text, stored)
        client.subscriptions[text] = subscription
        if is_shared(text) is not None:
            client.spawn(join_group(client, subscription))
            continue
        client.reading.subscribe(subscription)
        topics.update(dict.fromkeys(shared.publishing.rules.topics_for(text)))
    client.reading.resume(opened.positions, partitions_of(shared.places, list(topics)))
    for subscription in client.subscriptions.values():
        if is_shared(subscription.filter) is None:
            shared.subscribers.index.add(client, subscription)


async def _in_flight(client: "Client", opened: SessionOpened) -> list[InFlight]:
    """Messages sent and not acknowledged. Those that the log no longer has are dropped."""
    sent = {
        packet_id: flight
        for packet_id, flight in opened.in_flight
        if flight.stage == FlightStage.SENT and client.reading.knows(flight)
    }
    found = await client.reading.fetch(
        {packet_id: Place(flight.topic, flight.partition) for packet_id, flight in sent.items()},
        {packet_id: flight.offset for packet_id, flight in sent.items()},
        client.shared.places.is_replicated,
    )
    entries = []
    for packet_id, flight in opened.in_flight:
        if flight.stage == FlightStage.RELEASED:
            entries.append(InFlight(packet_id, None, Stage.RELEASED))
        elif packet_id in found:
            entries.append(InFlight(packet_id, _delivery(found[packet_id], flight), Stage.SENT))
    return entries


def _delivery(outgoing: Outgoing, flight: StoredFlight) -> Delivery:
    return Delivery(outgoing, flight.qos, bool(flight.retain), flight.identifiers)
