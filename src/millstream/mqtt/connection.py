"""The state machine of a client's connection: packets in; bytes and wants (see `wants`) out. It has no socket.

    CONNECTING -> (CONNECT) OPENING -> (opened) CONNECTED -> CLOSED
                            OPENING <-> AUTHENTICATING (AUTH)

After each call, `take` returns what to send and what to do. When a want is done, the owner calls the method that it
names. It calls `deliver` for each message that the client has subscribed to.
"""

import enum
from collections.abc import Callable, Sequence
from typing import NamedTuple

from millstream.mqtt.handshake import granted_properties, keep_alive_s, session_expiry_s, wanted_filters
from millstream.mqtt.inbound import Inbound
from millstream.mqtt.limits import MqttLimits, SlowSubscribers
from millstream.mqtt.outbound import InFlight, Offer, Outbound
from millstream.mqtt.outgoing import Delivery
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
)
from millstream.protocol.mqtt.bodies import CONNACK_REASONS
from millstream.protocol.mqtt.decoder import Decoder, NameCache
from millstream.protocol.mqtt.encoder import PINGRESP, encode
from millstream.protocol.mqtt.packets import (
    V3,
    V5,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from millstream.protocol.mqtt.properties import (
    AckProperties,
    AuthProperties,
    ConnackProperties,
    DisconnectProperties,
)
from millstream.protocol.mqtt.reasons import Reason, Unanswered, Violation, protocol_error


class State(enum.Enum):
    CONNECTING = "connecting"
    OPENING = "opening"
    AUTHENTICATING = "authenticating"
    CONNECTED = "connected"
    CLOSED = "closed"


class Opened(NamedTuple):
    """What the session holds when a client connects."""

    present: bool = False
    unreleased: Sequence[int] = ()
    """Packet ids of messages of QoS 2 that the client sent and has not released."""
    in_flight: Sequence[InFlight] = ()
    authentication_data: bytes | None = None


class Output(NamedTuple):
    data: bytes
    wants: list[Want]


class Connection:
    """`new_client_id` names clients that have no id; `names` is shared by all connections."""

    def __init__(
        self, limits: MqttLimits, new_client_id: Callable[[], str], names: NameCache | None = None
    ) -> None:
        self.state = State.CONNECTING
        self.client_id = ""
        self.version = V5
        self.session_expiry_s = 0
        self.keep_alive_s = 0
        self.assigned_id = False
        self._limits = limits
        self._new_client_id = new_client_id
        self._decoder = Decoder(limits.max_packet_bytes, names=names)
        self._connect: Connect | None = None
        self._has_will = False
        self._method: str | None = None
        self._is_reauthenticating = False
        self._waiting: list[Packet | Violation] = []
        # Set during SUBSCRIBE and UNSUBSCRIBE: later packets wait, including what the client publishes.
        self._is_subscribing = False
        self.answered: list[tuple[Delivery, int]] = []
        """Answered deliveries of shared subscriptions, with the reason codes; the owner takes them."""
        self._out: list[bytes] = []
        self._wants: list[Want] = []
        self.inbound = Inbound(V5, "", limits)
        self.outbound = Outbound(V5, limits)

    # -- in and out

    def receive(self, data: bytes, now_ms: int) -> None:
        """Handle the client's bytes. Packets wait while the session is opened or filters change."""
        packets = self._decoder.feed(data)
        if self._waiting or self.state is not State.CONNECTED or self._is_subscribing:
            self._waiting += packets
            self._handle_waiting(now_ms)
        else:
            self._handle_all(packets, now_ms)

    def take(self) -> Output:
        out, wants = self._out, self._wants
        inbound, outbound = self.inbound, self.outbound
        if outbound.to_reserve:
            wants.append(WantReserve(tuple(outbound.to_reserve)))
            outbound.to_reserve = []
        if outbound.to_keep_received:
            wants.append(WantKeepReceived(tuple(outbound.to_keep_received)))
            outbound.to_keep_received = []
        if inbound.bytes_out:
            out = out + inbound.bytes_out if out else inbound.bytes_out
            inbound.bytes_out = []
        if outbound.bytes_out:
            out = out + outbound.bytes_out if out else outbound.bytes_out
            outbound.bytes_out = []
        self._out, self._wants = [], []
        return Output(b"".join(out), wants)

    @property
    def holds(self) -> bool:
        """Whether packets are waiting, so that no more should be read."""
        return bool(self._waiting)

    def _handle_waiting(self, now_ms: int) -> None:
        if self.state is State.CLOSED:
            self._waiting.clear()
            return
        while self._waiting and not self._is_subscribing:
            if self._waits_for_session(self._waiting[0]):
                return
            waiting, self._waiting = self._waiting, []
            self._handle_all(waiting, now_ms)

    def _waits_for_session(self, packet: Packet | Violation) -> bool:
        return self.state is State.OPENING and not isinstance(packet, Disconnect | Violation)

    def _handle_all(self, packets: Sequence[Packet | Violation], now_ms: int) -> None:
        try:
            for number, packet in enumerate(packets):
                connected = self.state is State.CONNECTED
                if self._is_subscribing or (not connected and self._waits_for_session(packet)):
                    self._waiting += packets[number:]
                    return
                if connected and type(packet) is Publish:
                    self._publish(packet, now_ms)
                elif connected and type(packet) is Puback:
                    self._answered(self.outbound.puback(packet.packet_id, now_ms), packet.reason)
                elif isinstance(packet, Violation):
                    raise packet
                elif self.state is State.CLOSED:
                    return
                else:
                    self._other(packet, now_ms)
        except Unanswered as violation:
            self._end(violation.reason, violation.message, send_will=self.state is State.CONNECTED)
        except Violation as violation:
            unnamed = violation.reason is Reason.CLIENT_IDENTIFIER_NOT_VALID
            if self.state is State.CONNECTING and (violation.version == V5 or unnamed):
                # A client of 5.0 gets the reason in CONNACK; an older one only if its client id is invalid.
                self.state, self.version = State.OPENING, violation.version
            self.close(violation.reason, violation.message)

    def _other(self, packet: Packet, now_ms: int) -> None:
        if self.state is State.CONNECTING:
            assert isinstance(packet, Connect)
            self._start(packet)
        elif isinstance(packet, Disconnect):
            self._disconnect(packet)
        elif isinstance(packet, Auth):
            self._auth(packet)
        elif self.state is not State.CONNECTED:
            raise protocol_error("nothing but AUTH and DISCONNECT may come before CONNACK")
        else:
            self._connected(packet, now_ms)

    def _connected(self, packet: Packet, now_ms: int) -> None:
        match packet:
            case Pubrec():
                self._answered(self.outbound.pubrec(packet.packet_id, packet.reason, now_ms), packet.reason)
            case Pubrel():
                if self.inbound.release(packet.packet_id):
                    self._wants.append(WantRelease(packet.packet_id))
            case Pubcomp():
                self._answered(self.outbound.pubcomp(packet.packet_id, now_ms), 0)
            case Subscribe():
                self._is_subscribing = True
                users = packet.properties.user_properties
                self._wants.append(WantSubscribe(packet.packet_id, wanted_filters(packet), users))
            case Unsubscribe():
                self._is_subscribing = True
                self._wants.append(WantUnsubscribe(packet.packet_id, packet.filters))
            case Pingreq():
                self._out.append(PINGRESP)

    # -- connecting

    def _start(self, connect: Connect) -> None:
        self.state = State.OPENING
        self._connect = connect
        self.version = connect.version
        self.client_id = connect.client_id
        self._has_will = connect.will is not None
        self._method = connect.properties.authentication_method
        if not connect.client_id:
            if connect.version == V3 and not connect.clean_start:
                raise Violation(
                    Reason.CLIENT_IDENTIFIER_NOT_VALID, "an empty client id needs a clean session"
                )
            self.client_id = self._new_client_id()
            self.assigned_id = True
        self.session_expiry_s = session_expiry_s(connect, self._limits)
        self.keep_alive_s = keep_alive_s(connect, self._limits)
        self._wants.append(WantOpen(connect, self.client_id))

    def opened(self, session: Opened, now_ms: int) -> None:
        """The client is authenticated and its session open: send CONNACK, then messages pending from before."""
        if self.state not in (State.OPENING, State.AUTHENTICATING) or self._connect is None:
            return
        asked = self._connect.properties
        largest = asked.maximum_packet_size
        self.inbound = Inbound(
            self.version,
            self.client_id,
            self._limits,
            session.unreleased,
            explains=self._limits.explains and asked.request_problem_information != 0,
            is_taken=self._is_taken,
        )
        self.outbound = Outbound(
            self.version,
            self._limits,
            receive_maximum=asked.receive_maximum,
            alias_maximum=asked.topic_alias_maximum or 0,
            largest_packet=largest,
            durable=self.session_expiry_s > 0,
        )
        granted = granted_properties(
            self._connect,
            self._limits,
            self.client_id if self.assigned_id else None,
            session.authentication_data,
        )
        says_present = session.present and not self._connect.is_3_1
        connack = encode(Connack(0, says_present, granted), self.version)
        if largest is not None and len(connack) > largest:
            self._end(
                Reason.PACKET_TOO_LARGE, "the client takes no packet as large as CONNACK", send_will=False
            )
            return
        self._out.append(connack)
        self.outbound.resume(session.in_flight, now_ms)
        self.state = State.CONNECTED
        self._handle_waiting(now_ms)

    def refuse(self, reason: Reason, text: str = "", server: str | None = None) -> None:
        """Refuse the client; called instead of `opened`."""
        if self.state in (State.OPENING, State.AUTHENTICATING):
            self._refuse(reason, text, server)
            self._end(reason, text, send_will=False)
        else:
            self.close(reason, text, server)

    def _refuse(self, reason: Reason, text: str, server: str | None = None) -> None:
        if reason not in CONNACK_REASONS:
            reason = Reason.SERVER_UNAVAILABLE  # only DISCONNECT can carry the reason
        for explained in self._explanations(text):
            properties = ConnackProperties(reason_string=explained, server_reference=server)
            connack = encode(Connack(reason, False, properties), self.version)
            if self._is_taken(connack):
                break
        self._out.append(connack)

    def _explanations(self, text: str) -> tuple[str | None, ...]:
        """Texts to send with the reason; the first that fits the client is used."""
        return (text, None) if text and self._limits.explains else (None,)

    def _is_taken(self, data: bytes) -> bool:
        """Whether the packet is small enough for the client; if not, the explanation is left out."""
        largest = None if self._connect is None else self._connect.properties.maximum_packet_size
        return largest is None or len(data) <= largest

    # -- enhanced authentication

    def challenge(self, data: bytes | None, now_ms: int) -> None:
        """Send the next step of the exchange; the client answers with AUTH."""
        if self.state in (State.OPENING, State.CONNECTED):
            if self.state is State.OPENING:
                self.state = State.AUTHENTICATING
            self._say_auth(Reason.CONTINUE_AUTHENTICATION, data)
            self._handle_waiting(now_ms)

    def authenticated(self, data: bytes | None) -> None:
        """A connected client has authenticated again."""
        if self._is_reauthenticating:
            self._is_reauthenticating = False
            self._say_auth(Reason.SUCCESS, data)

    def _say_auth(self, reason: Reason, data: bytes | None) -> None:
        properties = AuthProperties(authentication_method=self._method, authentication_data=data)
        self._out.append(encode(Auth(reason, properties), self.version))

    def _auth(self, packet: Auth) -> None:
        method = packet.properties.authentication_method
        if self._method is None or method != self._method:
            raise protocol_error("AUTH with another method than CONNECT")
        if self.state is State.AUTHENTICATING:
            expected, self.state = Reason.CONTINUE_AUTHENTICATION, State.OPENING
        elif self.state is State.CONNECTED:
            expected = Reason.CONTINUE_AUTHENTICATION if self._is_reauthenticating else Reason.RE_AUTHENTICATE
            self._is_reauthenticating = True
        else:
            raise protocol_error("AUTH before the server has asked for it")
        if packet.reason != expected:
            raise protocol_error(f"AUTH with the reason 0x{packet.reason:02x} at the wrong time")
        self._wants.append(
            WantAuthentication(method, packet.properties.authentication_data, self._is_reauthenticating)
        )

    # -- publishing

    def _publish(self, packet: Publish, now_ms: int) -> None:
        inbound = self.inbound
        message = inbound.message(packet, now_ms)
        if packet.qos == 1:
            inbound.sending(packet.packet_id)
            self._wants.append(WantSend(packet.packet_id, message))
        elif not packet.qos:
            self._wants.append(WantSend(0, message))
        elif inbound.keep(packet.packet_id):
            self._wants.append(WantReceive(packet.packet_id, message))

    def sent(self, packet_id: int, reason: int = 0, text: str = "") -> None:
        if self.state is not State.CONNECTED or not packet_id:
            return
        if reason and self.version == V3:
            # 3.1.1 cannot refuse a message, and the client must not think it stored.
            self.close(Reason(reason), text)
        else:
            self.inbound.sent(packet_id, reason, text)

    def received(self, packet_id: int, reason: int = 0, text: str = "") -> None:
        if self.state is not State.CONNECTED:
            return
        if reason and self.version == V3:
            self.close(Reason(reason), text)
        else:
            self.inbound.received(packet_id, reason, text)

    def released(self, packet_id: int) -> None:
        if self.state is State.CONNECTED:
            self.inbound.released(packet_id)

    # -- delivering

    def deliver(self, delivery: Delivery, now_ms: int, others: Sequence[Delivery] = ()) -> Offer:
        """`others` are further copies of the same message: either all are taken, or none."""
        if self.state is not State.CONNECTED:
            return Offer.FULL
        outbound = self.outbound
        if outbound.is_blocked and self._limits.slow_subscribers is SlowSubscribers.DISCONNECT:
            self.close(Reason.QUOTA_EXCEEDED, "the client does not read what it is sent")
            return Offer.FULL
        if others:
            return outbound.offer_copies((delivery, *others), now_ms)
        return outbound.offer(delivery, now_ms)

    def reserved(self, packet_ids: Sequence[int], now_ms: int) -> None:
        if self.state is State.CONNECTED:
            self.outbound.reserved(packet_ids, now_ms)

    def kept_received(self, packet_ids: Sequence[int]) -> None:
        if self.state is State.CONNECTED:
            self.outbound.kept_received(packet_ids)

    # -- subscribing

    def subscribed(self, packet_id: int, reasons: Sequence[int], now_ms: int) -> None:
        self._changed(Suback(packet_id, tuple(reasons), AckProperties()), now_ms)

    def unsubscribed(self, packet_id: int, reasons: Sequence[int], now_ms: int) -> None:
        self._changed(Unsuback(packet_id, tuple(reasons), AckProperties()), now_ms)

    def _changed(self, answer: Suback | Unsuback, now_ms: int) -> None:
        if self.state is State.CONNECTED:
            self._out.append(encode(answer, self.version))
            self._is_subscribing = False
            self._handle_waiting(now_ms)

    def _answered(self, delivery: Delivery | None, reason: int) -> None:
        """Record the answer to a shared message, for its group."""
        if delivery is not None and delivery.outgoing.group is not None:
            self.answered.append((delivery, reason))

    # -- the end

    def _disconnect(self, packet: Disconnect) -> None:
        expiry = packet.properties.session_expiry_s
        if expiry is not None:
            asked = self._connect.properties.session_expiry_s if self._connect is not None else 0
            if expiry and not asked:
                raise protocol_error("DISCONNECT gives an expiry to a session that ends with its connection")
            self.session_expiry_s = min(expiry, self._limits.max_session_expiry_s)
        self._end(packet.reason, "the client has left", send_will=packet.reason != Reason.SUCCESS)

    def close(self, reason: Reason, text: str = "", server: str | None = None) -> None:
        """Close the connection. The reason goes in CONNACK, or in DISCONNECT of 5.0, if the client can be told."""
        if self.state is State.CLOSED:
            return
        if self.state is State.CONNECTED:
            if self.version == V5:
                for explained in self._explanations(text):
                    properties = DisconnectProperties(reason_string=explained, server_reference=server)
                    disconnect = encode(Disconnect(reason, properties), V5)
                    if self._is_taken(disconnect):
                        break
                self._out.append(disconnect)
        elif self.state is not State.CONNECTING or reason is Reason.UNSUPPORTED_PROTOCOL_VERSION:
            self._refuse(reason, text, server)
        self._end(reason, text, send_will=self.state is State.CONNECTED)

    def lost(self) -> None:
        """The client is gone without DISCONNECT."""
        if self.state is not State.CLOSED:
            self._end(Reason.UNSPECIFIED_ERROR, "the connection was lost", send_will=True)

    def keep_alive_over(self) -> None:
        self.close(Reason.KEEP_ALIVE_TIMEOUT, "nothing was heard for one and a half times the keep alive")

    def _end(self, reason: int, text: str, *, send_will: bool) -> None:
        opened = self.state is State.CONNECTED
        self.state = State.CLOSED
        self._waiting.clear()
        will = send_will and opened and self._has_will
        self._wants.append(WantClose(reason, text, will, self.session_expiry_s))
