"""A connected client: does the input and output that its state machine (`connection`) decides on."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

from millstream.doors import CoordinatorKind, Request
from millstream.doors.caller import Caller
from millstream.doors.mqtt_sessions import CloseSession, Done, Position
from millstream.doors.queues import SettlementKind
from millstream.mqtt.authenticating import Exchange
from millstream.mqtt.connection import Connection, State
from millstream.mqtt.opening import open_session
from millstream.mqtt.outbound import InFlight, Offer, Stage
from millstream.mqtt.outgoing import Delivery, Outgoing
from millstream.mqtt.places import partitions_of
from millstream.mqtt.queue_clients import leave, settle_once
from millstream.mqtt.queue_topics import is_settlement
from millstream.mqtt.reading import Reading
from millstream.mqtt.sending import Sending
from millstream.mqtt.session_link import Flights, SessionLink
from millstream.mqtt.share_groups import ShareGroup
from millstream.mqtt.shared import Shared
from millstream.mqtt.subscribing import subscribe, unsubscribe
from millstream.mqtt.subscriptions import Granted, Subscription
from millstream.mqtt.wants import (
    Want,
    WantAuthentication,
    WantClose,
    WantKeepReceived,
    WantOpen,
    WantReceive,
    WantRelease,
    WantReserve,
    WantSend,
    WantSubscribe,
    WantUnsubscribe,
    failure_of,
)
from millstream.mqtt.wire import Wire
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.mqtt.reasons import Reason
from millstream.protocol.mqtt.topics import shared

log = get_logger("millstream.mqtt")

A = TypeVar("A")

_SAVE_SECONDS: Final = 5.0
_END_PAUSE_SECONDS: Final = 0.5
_LONGEST_END_PAUSE_SECONDS: Final = 5.0
# How long messages of a client that has gone are still tried.
_LAST_SENDS_SECONDS: Final = 1.0
_BROKEN: Final = frozenset(
    {
        Reason.MALFORMED_PACKET,
        Reason.PROTOCOL_ERROR,
        Reason.UNSUPPORTED_PROTOCOL_VERSION,
        Reason.TOPIC_NAME_INVALID,
        Reason.RECEIVE_MAXIMUM_EXCEEDED,
        Reason.TOPIC_ALIAS_INVALID,
        Reason.PACKET_TOO_LARGE,
    }
)
"""Logged for the operator, because an old client cannot be told why it is disconnected."""


class Client:
    def __init__(self, door: Shared, wire: Wire) -> None:
        self.shared = door
        self.wire = wire
        self.machine = Connection(door.limits, door.new_client_id, door.names)
        self.caller = Caller(host=wire.host, listener="mqtt")
        self.client_id = ""
        self.epoch = 0
        self.link: SessionLink | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.queues: dict[str, ShareGroup] = {}
        """Queues that the client consumes, by filter."""
        self.groups: dict[str, ShareGroup] = {}
        """Groups that the client is a member of, including those of queues, by filter."""
        self.reading = Reading(
            door.doors.partitions,
            door.own_caller,
            door.publishing.rules,
            door.subscribers,
            self,
            door.places.identity,
            lambda place: door.doors.view.leader(place) is not None,
        )
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Set when nothing is left to do for the client."""
        self._last_heard = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._saver: asyncio.TimerHandle | None = None
        self.sending = Sending(self)
        self.exchange = Exchange(self)
        self._is_blocked = False
        self._is_paused = False
        self._work: asyncio.Task[None] | None = None
        self._waiting_work: list[WantSubscribe | WantUnsubscribe] = []
        self._opening: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        loop = asyncio.get_running_loop()
        self._now = loop.time
        self._timer = loop.call_later(door.limits.connect_timeout_s, self._not_connected)

    # -- the wire

    def data(self, data: bytes) -> None:
        self._last_heard = self._now()
        self.shared.statistics.received_bytes += len(data)
        self.machine.receive(data, self.shared.now_ms())
        self.flush()
        self._go_on()

    def _go_on(self) -> None:
        """Deliver more if there is room."""
        self.reading.go_on()
        for group in list(self.groups.values()):
            group.go_on()

    def lost(self) -> None:
        self.machine.lost()
        self.flush()

    def blocked(self, is_blocked: bool) -> None:
        """Stop reading from a client that does not read: it could send requests forever and take no answers."""
        self._is_blocked = is_blocked
        self.machine.outbound.is_blocked = is_blocked
        self.flush()
        if not is_blocked:
            self._go_on()

    def flush(self) -> None:
        if self.machine.answered:
            self._settle()
        while True:
            data, wants = self.machine.take()
            if data:
                self.shared.statistics.sent_bytes += len(data)
                self.wire.write(data)
            if not wants:
                break
            # An immediate refusal makes more output.
            self._act(wants)
        link = self.link
        is_paused = (
            self._is_blocked
            or self.machine.holds
            or self.sending.is_full
            or (link is not None and link.is_full)
        )
        if is_paused is not self._is_paused:
            self._is_paused = is_paused
            if is_paused:
                self.wire.pause_reading()
            else:
                self.wire.resume_reading()

    def _settle(self) -> None:
        answered, self.machine.answered = self.machine.answered, []
        for delivery, reason in answered:
            if delivery.outgoing.group is not None:
                kind = SettlementKind.ACCEPT if reason < Reason.UNSPECIFIED_ERROR else SettlementKind.REJECT
                delivery.outgoing.group.done(delivery.outgoing, kind)

    # -- what the machine wants

    def _act(self, wants: Sequence[Want]) -> None:
        sends: list[WantSend] = []
        for want in wants:
            match want:
                case WantSend():
                    sends.append(want)
                case WantReceive() if is_settlement(want.message.topic):
                    self.spawn(settle_once(self, want))
                case WantReceive() | WantRelease() | WantReserve() | WantKeepReceived():
                    assert self.link is not None
                    self.link.add(want)
                case WantSubscribe() | WantUnsubscribe():
                    self.sending.send_all(sends)
                    sends = []
                    self._waiting_work.append(want)
                    if self._work is None:
                        self._work = self.spawn(self._do_work())
                case WantOpen():
                    self.client_id = want.client_id
                    self._opening = self.spawn(open_session(self, want))
                case WantAuthentication():
                    self.exchange.answered(want)
                case WantClose():
                    self.sending.send_all(sends)
                    sends = []
                    self._close(want)
        self.sending.send_all(sends)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- the session

    def received(self, packet_ids: Sequence[int]) -> None:
        self.shared.statistics.received_messages += len(packet_ids)
        for packet_id in packet_ids:
            self.machine.received(packet_id)
        self.flush()

    def released(self, packet_ids: Sequence[int]) -> None:
        for packet_id in packet_ids:
            self.machine.released(packet_id)
        self.flush()

    def reserved(self, packet_ids: Sequence[int]) -> None:
        self.machine.reserved(packet_ids, self.shared.now_ms())
        self.flush()

    def kept_received(self, packet_ids: Sequence[int]) -> None:
        self.machine.kept_received(packet_ids)
        self.flush()

    def failed(self, error: KafkaError, packet_ids: Sequence[int]) -> bool:
        failure = failure_of(error)
        goes_on = failure.is_final and bool(packet_ids)
        if goes_on:
            for packet_id in packet_ids:
                self.machine.received(packet_id, failure.reason, failure.text)
        else:
            self.machine.close(failure.reason, failure.text)
        self.flush()
        return goes_on

    def taken_over(self) -> None:
        self.sending.give_up()
        self.close(Reason.SESSION_TAKEN_OVER, "another connection has this client id")

    def close(self, reason: Reason, text: str = "") -> None:
        self.machine.close(reason, text)
        self.flush()

    async def _do_work(self) -> None:
        """Handle SUBSCRIBE and UNSUBSCRIBE in the order of arrival."""
        try:
            while self._waiting_work:
                want = self._waiting_work.pop(0)
                if isinstance(want, WantSubscribe):
                    await subscribe(self, want)
                else:
                    await unsubscribe(self, want)
        finally:
            self._work = None

    def look_for_partitions(self, filters: Iterable[str]) -> None:
        """Read partitions that were added since the client subscribed."""
        rules = self.shared.publishing.rules
        topics = {topic: None for text in filters if shared(text) is None for topic in rules.topics_for(text)}
        self.reading.grow(partitions_of(self.shared.places, list(topics)))

    # -- delivering

    @property
    def has_room(self) -> bool:
        outbound = self.machine.outbound
        return outbound.has_room and not outbound.is_blocked

    @property
    def is_open(self) -> bool:
        return self.machine.state is State.CONNECTED

    def offer(self, outgoing: Outgoing, granted: Granted, now_ms: int) -> None:
        """Offer a record that the node read once for all its subscribers."""
        reading = self.reading
        if (reading.behind or reading.starts) and not reading.is_due(outgoing.place, outgoing.offset):
            return
        self.give(outgoing, granted, now_ms)

    def deliver(self, delivery: Delivery, now_ms: int) -> Offer:
        """Deliver a message that a shared subscription hands out."""
        return self.machine.deliver(delivery, now_ms)

    def give(self, outgoing: Outgoing, granted: Granted, now_ms: int) -> None:
        if granted.others:
            self._give_copies(outgoing, granted, now_ms)
            return
        message = outgoing.message
        qos = min(message.qos, granted.qos)
        if qos == 2 and outgoing.offset < self.reading.once.get(outgoing.place, 0):
            return
        retain = message.retain and granted.retain_as_published
        delivery = Delivery(outgoing, qos, retain, granted.identifiers)
        if self.machine.deliver(delivery, now_ms) is Offer.FULL:
            self.reading.fall_behind(outgoing.place, outgoing.offset)

    def _give_copies(self, outgoing: Outgoing, granted: Granted, now_ms: int) -> None:
        message = outgoing.message
        copies = [
            Delivery(
                outgoing,
                min(message.qos, each.qos),
                message.retain and each.retain_as_published,
                each.identifiers,
            )
            for each in (granted, *granted.others)
        ]
        if outgoing.offset < self.reading.once.get(outgoing.place, 0):
            copies = [each for each in copies if each.qos < 2]
        if copies and self.machine.deliver(copies[0], now_ms, copies[1:]) is Offer.FULL:
            self.reading.fall_behind(outgoing.place, outgoing.offset)

    # -- time

    def opened(self) -> None:
        """CONNACK was sent: start the keep-alive timer and saving progress."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        if self.machine.keep_alive_s:
            self._timer = loop.call_later(self.machine.keep_alive_s * 1.5, self._look)
        if self.machine.session_expiry_s:
            self._saver = loop.call_later(_SAVE_SECONDS, self._save_soon)

    def _look(self) -> None:
        allowed = self.machine.keep_alive_s * 1.5
        silent = self._now() - self._last_heard
        if silent >= allowed:
            self.machine.keep_alive_over()
            self.flush()
        else:
            self._timer = asyncio.get_running_loop().call_later(allowed - silent, self._look)

    def _not_connected(self) -> None:
        self._timer = None
        if not self.is_open:
            self.machine.lost()
            self.flush()

    def _save_soon(self) -> None:
        if self.is_open:
            self.spawn(self._save())

    async def _save(self) -> None:
        """Save the progress of the session; after a crash, delivery resumes from here."""
        outbound = self.machine.outbound
        freed, outbound.freed = outbound.freed, set()
        positions = self.reading.positions(outbound.queued, outbound.in_flight)
        assert self.link is not None
        try:
            if self.reading.places or freed:
                await self.link.save(positions, tuple(freed))
        except KafkaError as error:
            outbound.freed |= freed.difference(each.packet_id for each in outbound.in_flight)
            log.info("session progress not saved", client_id=self.client_id, error=error.message)
        if self.is_open:
            self._saver = asyncio.get_running_loop().call_later(_SAVE_SECONDS, self._save_soon)

    # -- the end

    def _close(self, want: WantClose) -> None:
        host = self.wire.host
        if want.reason in _BROKEN and self.shared.broken.is_due((host, want.reason)):
            log.warning("connection closed", host=host, client_id=self.client_id, reason=want.message)
        for timer in (self._timer, self._saver):
            if timer is not None:
                timer.cancel()
        self.reading.stop()
        self.exchange.end()
        outbound = self.machine.outbound
        positions = self.reading.positions(outbound.queued, ())
        self.shared.subscribers.remove(self, self.subscriptions)
        for text in list(self.queues):
            leave(self, text)
        kept = [
            each.delivery for each in outbound.in_flight if each.delivery is not None and _is_its_own(each)
        ]
        for text in self.subscriptions:
            if (share := shared(text)) is not None:
                self.shared.share_groups.leave(share.group, share.filter, self, kept)
        self.wire.close()
        asyncio.get_running_loop().call_later(_LAST_SENDS_SECONDS, self.sending.give_up)
        self._ending = self.spawn(self._end(want, positions))

    def cut_off(self) -> None:
        """The door closes: give up reporting the end of the session."""
        self.wire.abort()
        for task in (self._opening, self._ending):
            if task is not None:
                task.cancel()

    def _own_in_flight(self) -> list[InFlight]:
        """What is in flight, without shared messages that another member may get instead."""
        return [
            each
            for each in self.machine.outbound.in_flight
            if each.delivery is None or each.delivery.outgoing.group is None or _is_its_own(each)
        ]

    async def tell_end(
        self,
        link: SessionLink,
        *,
        send_will: bool,
        expiry_s: int,
        positions: Sequence[Position],
        in_flight: Flights,
    ) -> None:
        """Report the end of the session to its coordinator.

        Until then this node keeps the session alive, and the client counts as connected, which bounds how many wait.
        """
        try:
            await self.tell_patiently(
                CloseSession(
                    self.client_id, link.epoch, send_will, expiry_s, tuple(positions), tuple(in_flight)
                )
            )
        finally:
            self.shared.attending.remove(self, link.shard)

    async def tell_patiently(self, request: Request[Done]) -> None:
        """Retry while the coordinator is away: if it never learned of DISCONNECT, it would send the will."""
        pause = _END_PAUSE_SECONDS
        while True:
            try:
                await self.ask(request)
            except KafkaError as error:
                is_permanent = error.code is ErrorCode.UNSUPPORTED_VERSION
                if is_permanent or failure_of(error).reason is not Reason.SERVER_BUSY:
                    log.info("session end not reported", client_id=self.client_id, error=error.message)
                    return
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_END_PAUSE_SECONDS)
            else:
                return

    async def ask(self, request: Request[A]) -> A:
        """Ask the coordinator of the client's session."""
        return await self.shared.doors.coordinators.ask(
            self.caller, CoordinatorKind.MQTT_SESSION, self.client_id, request
        )

    async def _end(self, want: WantClose, positions: Sequence[Position]) -> None:
        try:
            if self._opening is not None:
                # If the client left before CONNACK, open_session reports the end.
                await asyncio.wait({self._opening})
            if self.link is not None:
                await self.link.settled()
                is_kept = want.session_expiry_s > 0
                await self.tell_end(
                    self.link,
                    send_will=want.send_will,
                    expiry_s=want.session_expiry_s,
                    positions=positions if is_kept else (),
                    in_flight=self.link.flights(self._own_in_flight()) if is_kept else (),
                )
        finally:
            if not self.ended.done():
                self.ended.set_result(None)


def _is_its_own(entry: InFlight) -> bool:
    """Whether a shared message stays with this client: one of QoS 2 does once it may have been sent, because its packet
    id is durable then. Before that, another member may get it."""
    return entry.delivery is not None and entry.delivery.qos == 2 and entry.stage is not Stage.RESERVED
