"""What one client is sent: packet ids, the window of unacknowledged messages, and the queue for it.

    QoS 1   SENT -> (PUBACK) gone
    QoS 2   SENT -> (PUBREC) RECEIVED -> (durable) RELEASED, PUBREL -> (PUBCOMP) gone

If a session outlives its connection, packet ids of QoS 2 become durable before they are sent (RESERVED -> SENT), so
that after a failover no message is sent under two ids. The ids of several copies of one message become durable
together, because the session's position in the log then passes the message; copies beyond the window wait after that.
"""

import enum
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from millstream.mqtt.limits import MqttLimits
from millstream.mqtt.outgoing import Delivery
from millstream.protocol.mqtt.encoder import encode, publish_frame
from millstream.protocol.mqtt.packets import V5, Pubrel
from millstream.protocol.mqtt.reasons import protocol_error

_MOST_IDS = 65_535
_ERRORS_FROM = 0x80


class Stage(enum.Enum):
    RESERVED = "reserved"
    SENT = "sent"
    RECEIVED = "received"
    RELEASED = "released"


class InFlight(msgspec.Struct, frozen=True):
    """`delivery` is None if only PUBREL is pending and the message is no longer needed."""

    packet_id: int
    delivery: Delivery | None
    stage: Stage


class Offer(enum.Enum):
    TAKEN = "taken"
    DROPPED = "dropped"
    """Will not be sent: expired, too large for the client, or QoS 0 while the client does not read."""
    FULL = "full"
    """No room: read it from the log later."""


class Outbound:
    """Bytes to send collect in `bytes_out`, packet ids to make durable in `to_reserve` and `to_keep_received`."""

    __slots__ = (
        "_alias_maximum", "_aliases", "_durable", "_flight", "_largest", "_last_id", "_limits", "_queue",
        "_queued_bytes", "_unsent", "_version", "_window", "bytes_out", "dropped", "freed", "is_blocked",
        "to_keep_received", "to_reserve",
    )  # fmt: skip

    def __init__(
        self,
        version: int,
        limits: MqttLimits,
        *,
        receive_maximum: int | None = None,
        alias_maximum: int = 0,
        largest_packet: int | None = None,
        durable: bool = False,
    ) -> None:
        self._version = version
        self._limits = limits
        self._window = min(receive_maximum or _MOST_IDS, limits.max_inflight)
        self._alias_maximum = min(alias_maximum, limits.topic_alias_maximum)
        self._largest = largest_packet
        self._durable = durable
        self._aliases: dict[str, int] = {}
        self._flight: dict[int, InFlight] = {}
        self._queue: deque[tuple[Delivery, int]] = deque()
        self._queued_bytes = 0
        self._last_id = 0
        # Messages with packet ids that wait for the window: it shrank, or copies filled it.
        self._unsent: deque[tuple[Delivery, int, bool]] = deque()
        self.bytes_out: list[bytes] = []
        self.to_reserve: list[InFlight] = []
        self.to_keep_received: list[int] = []
        self.is_blocked = False
        """The client has not read what was sent."""
        self.dropped = 0
        self.freed: set[int] = set()
        """Durable packet ids that are no longer in use."""

    # -- contents

    @property
    def in_flight(self) -> list[InFlight]:
        """In the order of first sending."""
        return list(self._flight.values())

    @property
    def queued(self) -> list[Delivery]:
        return [delivery for delivery, _ in self._queue]

    @property
    def has_room(self) -> bool:
        """Whether it is worth reading more from the log."""
        return len(self._queue) * 2 < self._limits.max_queued

    # -- sending

    def resume(self, before: Iterable[InFlight], now_ms: int) -> None:
        """Called first on a connection: resend what the last one left, in order and under the same packet ids."""
        for entry in before:
            self._flight[entry.packet_id] = entry
            self._last_id = entry.packet_id
            if entry.stage in (Stage.RECEIVED, Stage.RELEASED) or entry.delivery is None:
                self._release(entry.packet_id)
            else:
                self._flight[entry.packet_id] = replace(entry, stage=Stage.SENT)
                self._unsent.append((entry.delivery, entry.packet_id, True))
        for _ in range(min(self._window, len(self._unsent))):
            self._send_next(now_ms)

    def _send_next(self, now_ms: int) -> None:
        delivery, packet_id, dup = self._unsent.popleft()
        self.bytes_out.append(self._frame(delivery, packet_id, now_ms, dup=dup))

    def offer(self, delivery: Delivery, now_ms: int) -> Offer:
        message = delivery.outgoing.message
        if message.expires_ms and message.is_expired(now_ms):
            return Offer.DROPPED
        if self._largest is not None and self._size(delivery, now_ms) > self._largest:
            self.dropped += 1
            return Offer.DROPPED
        if not delivery.qos:
            if self.is_blocked:
                self.dropped += 1
                return Offer.DROPPED
            if self._alias_maximum:
                self.bytes_out.append(self._aliased(delivery, 0, now_ms))
            else:
                frame = delivery.frame(self._version, now_ms)
                self.bytes_out.append(frame.before + frame.after)
            return Offer.TAKEN
        if not self._queue and (len(self._flight) < self._window or self._goes_with_last(delivery)):
            self._send(delivery, now_ms)
            return Offer.TAKEN
        size = len(message.payload)
        if len(self._queue) >= self._limits.max_queued or (
            self._queue and self._queued_bytes + size > self._limits.max_queued_bytes
        ):
            return Offer.FULL
        self._queue.append((delivery, size))
        self._queued_bytes += size
        return Offer.TAKEN

    def offer_copies(self, copies: Sequence[Delivery], now_ms: int) -> Offer:
        """Offer copies of one message: either all are taken, or none. An empty queue takes any number."""
        size = len(copies[0].outgoing.message.payload)
        if self._queue and (
            len(self._queue) + len(copies) > self._limits.max_queued
            or self._queued_bytes + len(copies) * size > self._limits.max_queued_bytes
        ):
            return Offer.FULL
        for each in copies:
            if self.offer(each, now_ms) is Offer.FULL:
                self._queue.append((each, size))
                self._queued_bytes += size
        return Offer.TAKEN

    def _goes_with_last(self, delivery: Delivery) -> bool:
        """Whether its packet id becomes durable together with the last one, being of the same message."""
        if delivery.qos < 2 or not self.to_reserve:
            return False
        last = self.to_reserve[-1].delivery
        return last is not None and last.outgoing is delivery.outgoing

    def _pump(self, now_ms: int) -> None:
        while self._queue and (len(self._flight) < self._window or self._goes_with_last(self._queue[0][0])):
            delivery, size = self._queue.popleft()
            self._queued_bytes -= size
            if not delivery.outgoing.is_over(now_ms):
                self._send(delivery, now_ms)

    def _send(self, delivery: Delivery, now_ms: int) -> None:
        packet_id = self._free_id()
        if delivery.qos == 2 and self._durable:
            entry = InFlight(packet_id, delivery, Stage.RESERVED)
            self.to_reserve.append(entry)
            self.freed.discard(packet_id)
        else:
            entry = InFlight(packet_id, delivery, Stage.SENT)
            self.bytes_out.append(self._frame(delivery, packet_id, now_ms))
        self._flight[packet_id] = entry

    def reserved(self, packet_ids: Iterable[int], now_ms: int) -> None:
        """These packet ids are durable now."""
        for packet_id in packet_ids:
            entry = self._flight.get(packet_id)
            if entry is not None and entry.stage is Stage.RESERVED and entry.delivery is not None:
                self._flight[packet_id] = replace(entry, stage=Stage.SENT)
                if len(self._flight) > self._window:
                    self._unsent.append((entry.delivery, packet_id, False))
                else:
                    self.bytes_out.append(self._frame(entry.delivery, packet_id, now_ms))
        while self._unsent and len(self._flight) - len(self._unsent) < self._window:
            self._send_next(now_ms)

    # -- what the client answers

    def puback(self, packet_id: int, now_ms: int) -> Delivery | None:
        """Returns what was acknowledged; None for an unknown packet id."""
        entry = self._flight.get(packet_id)
        if entry is None:
            return None
        if entry.delivery is None or entry.delivery.qos != 1:
            raise protocol_error("PUBACK for a message of QoS 2")
        return self._done(packet_id, now_ms)

    def pubrec(self, packet_id: int, reason: int, now_ms: int) -> Delivery | None:
        """Returns a delivery that the client refused, which ends it; None if the exchange goes on."""
        entry = self._flight.get(packet_id)
        if entry is None or entry.stage is Stage.RESERVED:
            if reason < _ERRORS_FROM:
                # Not an error: mostly the exchange is over, and the client did not get its last packet.
                self._pubrel(packet_id)
            return None
        if entry.delivery is not None and entry.delivery.qos != 2:
            raise protocol_error("PUBREC for a message of QoS 1")
        if reason >= _ERRORS_FROM:
            return self._done(packet_id, now_ms)
        if entry.stage is Stage.RELEASED:
            self._pubrel(packet_id)
        elif entry.stage is Stage.SENT:
            self._flight[packet_id] = replace(entry, stage=Stage.RECEIVED)
            if self._durable:
                self.to_keep_received.append(packet_id)
            else:
                self._release(packet_id)
        return None

    def kept_received(self, packet_ids: Iterable[int]) -> None:
        """It is durable now that the client has received these."""
        for packet_id in packet_ids:
            entry = self._flight.get(packet_id)
            if entry is not None and entry.stage is Stage.RECEIVED:
                self._release(packet_id)

    def pubcomp(self, packet_id: int, now_ms: int) -> Delivery | None:
        entry = self._flight.get(packet_id)
        if entry is None:
            return None
        if entry.stage is not Stage.RELEASED:
            raise protocol_error("PUBCOMP without PUBREL")
        return self._done(packet_id, now_ms)

    # -- helpers

    def _done(self, packet_id: int, now_ms: int) -> Delivery | None:
        delivery = self._flight.pop(packet_id).delivery
        if self._durable and (delivery is None or delivery.qos == 2):
            self.freed.add(packet_id)
        if self._unsent:
            self._send_next(now_ms)
        elif self._queue:
            self._pump(now_ms)
        return delivery

    def _release(self, packet_id: int) -> None:
        self._flight[packet_id] = replace(self._flight[packet_id], stage=Stage.RELEASED)
        self._pubrel(packet_id)

    def _pubrel(self, packet_id: int) -> None:
        self.bytes_out.append(encode(Pubrel(packet_id), self._version))

    def _free_id(self) -> int:
        packet_id = self._last_id
        while True:
            packet_id = packet_id % _MOST_IDS + 1
            if packet_id not in self._flight:
                self._last_id = packet_id
                return packet_id

    def _size(self, delivery: Delivery, now_ms: int) -> int:
        return delivery.frame(self._version, now_ms).size_bytes

    def _frame(self, delivery: Delivery, packet_id: int, now_ms: int, *, dup: bool = False) -> bytes:
        if self._alias_maximum and not dup:
            return self._aliased(delivery, packet_id, now_ms)
        return delivery.frame(self._version, now_ms).with_id(packet_id, dup=dup)

    def _aliased(self, delivery: Delivery, packet_id: int, now_ms: int) -> bytes:
        """Uses a topic alias if the topic has one; the first topics get them."""
        outgoing, qos = delivery.outgoing, delivery.qos
        message = outgoing.message
        topic = message.topic
        properties = outgoing.properties(V5, delivery.identifiers, now_ms)
        alias = self._aliases.get(message.topic)
        if alias is not None:
            topic = ""
        elif len(self._aliases) < self._alias_maximum:
            alias = self._aliases[message.topic] = len(self._aliases) + 1
        if alias is not None:
            properties = replace(properties, topic_alias=alias)
        frame = publish_frame(topic, message.payload, qos, delivery.retain, V5, properties, outgoing.extras)
        return frame.with_id(packet_id) if qos else frame.before + frame.after
