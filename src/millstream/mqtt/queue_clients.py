"""What a client does with queues: publish to a new one, consume (perhaps at the leader), settle."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from millstream.doors import Place
from millstream.doors.cluster import ClusterView
from millstream.doors.queues import Settled, Settlement
from millstream.mqtt.queue_topics import Deliveries, QueueName, ToSettle, group_of, queue_of, settlement_of
from millstream.mqtt.record_form import Message
from millstream.mqtt.share_groups import ShareGroup
from millstream.mqtt.subscriptions import Subscription
from millstream.mqtt.wants import Failure, WantReceive, WantSend, failure_of
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.mqtt.packets import V3
from millstream.protocol.mqtt.properties import UserProperties
from millstream.protocol.mqtt.reasons import Reason

if TYPE_CHECKING:
    from millstream.mqtt.client import Client


async def send_to_new_queue(client: "Client", want: WantSend) -> None:
    """Create the queue first. If sending then fails, the client is told."""
    try:
        await client.shared.publishing.make_queue(want.message.topic)
        client.shared.publishing.record(want.message)
    except KafkaError as error:
        client.sending.refused(failure_of(error), [want.packet_id])
        client.flush()
        return
    client.sending.send_all([want])


def member_of(client: "Client") -> str:
    """The same on all nodes: a client may settle on another connection than the delivery came on."""
    return f"mqtt:{client.client_id}"


async def consume(client: "Client", subscription: Subscription, properties: UserProperties) -> int:
    """Join the queue. Returns the granted QoS, or the reason of the refusal."""
    try:
        queue = queue_of(subscription.filter)
    except ValueError:
        return Reason.TOPIC_FILTER_INVALID
    assert queue is not None
    explicit = client.machine.version != V3 and dict(properties).get("ack-mode") != "packet"
    if not subscription.qos and not explicit:
        # Without acknowledgements there is no way to settle.
        return Reason.QOS_NOT_SUPPORTED if client.machine.version != V3 else Reason.UNSPECIFIED_ERROR
    leave(client, subscription.filter)
    await client.shared.places.ensure({queue.name: ()})
    server = client.shared.redirects.consumer(client.shared.places.of(queue.name))
    if server is not None and client.machine.version != V3:
        client.machine.close(Reason.USE_ANOTHER_SERVER, f"{queue.name} is led at {server}", server)
        return Reason.USE_ANOTHER_SERVER
    group = _group(client, queue, group_of(queue, properties, client.client_id), explicit=explicit)
    await group.open()
    client.queues[subscription.filter] = group
    client.groups[subscription.filter] = group
    return subscription.qos


def _group(client: "Client", queue: QueueName, name: str, *, explicit: bool) -> ShareGroup:
    door = client.shared
    rules = door.publishing.rules
    return ShareGroup(
        door.doors,
        client.caller,
        member_of(client),
        name,
        lambda: {
            place: Deliveries(queue, name, rules, place).outgoing for place in door.places.of(queue.name)
        },
        door.share_groups.running,
        door.now_ms,
        door.share_groups.tail,
        door.limits.delivery_batch,
        from_start=True,
        explicit=explicit,
        max_held=door.limits.max_queue_held,
    )


def leave(client: "Client", text: str) -> None:
    """Stop consuming, and release what the client holds."""
    group = client.queues.pop(text, None)
    if group is not None:
        group.leave(client)
        client.groups.pop(text, None)
        client.spawn(_release(group))


async def _release(group: ShareGroup) -> None:
    try:
        await group.release_all()
    except KafkaError:
        # The locks time out.
        return


def settled_by(message: Message) -> ToSettle | None:
    """What the message settles; None if it is a message for the queue."""
    try:
        return settlement_of(message.topic, message.properties.user_properties)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None


async def settle(client: "Client", group: str, place: Place, wanted: Sequence[tuple[int, ToSettle]]) -> None:
    """Settle together what arrived together for one group, and answer each packet id."""
    failures = await _settle(client, group, place, [each for _, each in wanted])
    for (packet_id, _), failure in zip(wanted, failures, strict=True):
        if failure is not None:
            client.sending.refused(failure, [packet_id])
        else:
            client.machine.sent(packet_id)
    client.sending.counted(-len(wanted), 0)
    client.flush()


async def settle_once(client: "Client", want: WantReceive) -> None:
    """`settle` for QoS 2. Nothing is stored, because settling twice has the effect of settling once."""
    try:
        settled = settled_by(want.message)
        assert settled is not None
        (failure,) = await _settle(client, settled.group, settled.place, [settled])
    except KafkaError as error:
        failure = failure_of(error)
    if failure is None:
        client.machine.received(want.packet_id)
    elif failure.is_final:
        client.machine.received(want.packet_id, failure.reason, failure.text)
    else:
        client.machine.close(failure.reason, failure.text)
    client.flush()


async def _settle(
    client: "Client", group: str, place: Place, wanted: Sequence[ToSettle]
) -> list[Failure | None]:
    settlements = [
        Settlement(each.offset, each.offset, each.kind, reason=each.reason, incarnation=each.incarnation)
        for each in wanted
    ]
    try:
        settled: Sequence[Settled] = await client.shared.doors.queues.settle(
            client.caller, group, member_of(client), place, settlements
        )
    except KafkaError as error:
        settled = [Settled(error.code, error.message)] * len(wanted)
    return [_failure(each) for each in settled]


def _failure(outcome: Settled) -> Failure | None:
    if not outcome.error:
        return None
    failure = failure_of(KafkaError(outcome.error, outcome.message))
    if outcome.error is ErrorCode.INVALID_RECORD_STATE:
        return failure._replace(reason=Reason.IMPLEMENTATION_SPECIFIC_ERROR, is_final=True)
    return failure


class Redirects:
    """Sends consumers of `queues` to the queue's leader; consumers of other queues are served through any node.

    `servers` are the addresses of nodes' MQTT listeners; a node without one has `port` at its own host.
    """

    def __init__(self, view: ClusterView, queues: frozenset[str], servers: Mapping[int, str]) -> None:
        self._view = view
        self._queues = queues
        self._servers = servers
        self.port = 0

    def consumer(self, places: list[Place]) -> str | None:
        """Where a consumer of the queue with these partitions should connect; None if it may stay here."""
        if not places or places[0].topic not in self._queues:
            return None
        leaders = [leader for place in places if (leader := self._view.leader(place)) is not None]
        if not leaders or self._view.node_id in leaders:
            return None
        leader = leaders[0]
        if leader in self._servers:
            return self._servers[leader]
        host = next(
            (each.endpoints[0].host for each in self._view.brokers() if each.broker_id == leader), None
        )
        return None if host is None or not self.port else f"{host}:{self.port}"
