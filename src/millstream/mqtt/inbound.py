"""What one client publishes: topic aliases, acknowledgements in order, and QoS 2 exactly once.

    QoS 1   stored -> PUBACK, in the order in which the messages came
    QoS 2   KEEPING -> (durable) PUBREC, KEPT -> (PUBREL) RELEASING -> (durable) PUBCOMP

Until PUBREL, a repeated PUBLISH of QoS 2 is answered by PUBREC and is not a second message.
"""

import enum
from collections import deque
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from millstream.mqtt.limits import MqttLimits
from millstream.mqtt.record_form import NEVER, Message
from millstream.protocol.mqtt.encoder import encode, puback
from millstream.protocol.mqtt.packets import NO_PUBLISH_PROPERTIES, V5, Puback, Pubcomp, Publish, Pubrec
from millstream.protocol.mqtt.properties import AckProperties
from millstream.protocol.mqtt.reasons import Reason, Violation, protocol_error

_ERRORS_FROM = 0x80


class Stage(enum.Enum):
    KEEPING = "keeping"
    KEPT = "kept"
    RELEASING = "releasing"


class Inbound:
    """Bytes to send collect in `bytes_out`."""

    __slots__ = (
        "_acks", "_alias_bytes", "_aliases", "_client_id", "_done", "_explains", "_is_taken", "_limits", "_second",
        "_unreleased", "_version", "bytes_out",
    )  # fmt: skip

    def __init__(
        self,
        version: int,
        client_id: str,
        limits: MqttLimits,
        unreleased: Iterable[int] = (),
        *,
        explains: bool = True,
        is_taken: Callable[[bytes], bool] = bool,
    ) -> None:
        """`unreleased` are packet ids of QoS 2 that an earlier connection left; `explains`: send reason strings.

        `is_taken` returns whether a packet is small enough for the client.
        """
        self._version = version
        self._explains = explains
        self._is_taken = is_taken
        self._client_id = client_id
        self._limits = limits
        self._aliases: dict[int, str] = {}
        self._alias_bytes = 0
        self._acks: deque[int] = deque()
        self._done: dict[int, tuple[int, str]] = {}
        self._second: dict[int, Stage] = dict.fromkeys(unreleased, Stage.KEPT)
        # Of this connection only: what an earlier one left does not count against the window.
        self._unreleased: set[int] = set()
        self.bytes_out: list[bytes] = []

    @property
    def unacknowledged(self) -> int:
        return len(self._acks) + len(self._unreleased)

    def message(self, packet: Publish, now_ms: int) -> Message:
        """The packet as a message, its alias resolved. Checks the receive window."""
        properties = packet.properties
        if packet.qos and self.unacknowledged >= self._limits.receive_maximum and self._version == V5:
            self._check_window(packet.packet_id)
        if properties is NO_PUBLISH_PROPERTIES:
            return Message(
                packet.topic, packet.payload, packet.qos, packet.retain, properties, NEVER, self._client_id
            )
        topic = packet.topic
        if properties.topic_alias is not None:
            topic = self._resolve(properties.topic_alias, topic)
        expires_ms = NEVER
        if properties.message_expiry_s is not None:
            expires_ms = now_ms + properties.message_expiry_s * 1000
        plain = replace(properties, topic_alias=None, message_expiry_s=None)
        return Message(topic, packet.payload, packet.qos, packet.retain, plain, expires_ms, self._client_id)

    def _check_window(self, packet_id: int) -> None:
        if packet_id not in self._second:
            raise Violation(
                Reason.RECEIVE_MAXIMUM_EXCEEDED,
                f"{self.unacknowledged} messages wait for their acknowledgement; no more are allowed",
            )

    def _resolve(self, alias: int, topic: str) -> str:
        if alias > self._limits.topic_alias_maximum:
            raise Violation(
                Reason.TOPIC_ALIAS_INVALID,
                f"topic alias {alias} is too high; the highest is {self._limits.topic_alias_maximum}",
            )
        known = self._aliases.get(alias, "")
        if not topic:
            if not known:
                raise protocol_error(f"topic alias {alias} was not set: send the topic with it first")
            return known
        self._alias_bytes += len(topic.encode()) - len(known.encode())
        if self._alias_bytes > self._limits.max_alias_bytes:
            raise Violation(Reason.QUOTA_EXCEEDED, "the topics that aliases stand for are too long together")
        self._aliases[alias] = topic
        return topic

    # -- QoS 1

    def sending(self, packet_id: int) -> None:
        self._acks.append(packet_id)

    def sent(self, packet_id: int, reason: int = 0, text: str = "") -> None:
        """The message is durable, or was refused. PUBACKs leave in the order of the messages."""
        acks = self._acks
        if not self._done and acks and acks[0] == packet_id and not reason:
            acks.popleft()
            self.bytes_out.append(puback(packet_id))
            return
        self._done[packet_id] = (reason, text)
        while acks and acks[0] in self._done:
            first = acks.popleft()
            self.bytes_out.append(self._answer(Puback, first, *self._done.pop(first)))

    # -- QoS 2

    def keep(self, packet_id: int) -> bool:
        """Whether the message is new and must be stored; a repeated one is answered here."""
        stage = self._second.get(packet_id)
        if stage is None:
            self._second[packet_id] = Stage.KEEPING
            self._unreleased.add(packet_id)
            return True
        if stage is Stage.KEPT:
            self._unreleased.add(packet_id)
            self.bytes_out.append(self._answer(Pubrec, packet_id))
        return False

    def received(self, packet_id: int, reason: int = 0, text: str = "") -> None:
        if self._second.get(packet_id) is not Stage.KEEPING:
            return
        if reason >= _ERRORS_FROM:
            self._free(packet_id)
        else:
            self._second[packet_id] = Stage.KEPT
        self.bytes_out.append(self._answer(Pubrec, packet_id, reason, text))

    def release(self, packet_id: int) -> bool:
        """Whether the release must be made durable; an unknown packet id is answered here."""
        stage = self._second.get(packet_id)
        if stage is None:
            # Not an error: mostly released before, and the client did not get PUBCOMP.
            self.bytes_out.append(self._answer(Pubcomp, packet_id))
            return False
        if stage is not Stage.KEPT:
            return False
        self._second[packet_id] = Stage.RELEASING
        return True

    def released(self, packet_id: int) -> None:
        if self._second.get(packet_id) is Stage.RELEASING:
            self._free(packet_id)
            self.bytes_out.append(self._answer(Pubcomp, packet_id))

    def _free(self, packet_id: int) -> None:
        del self._second[packet_id]
        self._unreleased.discard(packet_id)

    def _answer(
        self,
        made: type[Puback] | type[Pubrec] | type[Pubcomp],
        packet_id: int,
        reason: int = 0,
        text: str = "",
    ) -> bytes:
        if text and self._explains:
            explained = encode(made(packet_id, reason, AckProperties(reason_string=text)), self._version)
            if self._is_taken(explained):
                return explained
        return encode(made(packet_id, reason), self._version)
