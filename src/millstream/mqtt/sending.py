"""What one client publishes with QoS 0 and 1, on its way to the log: what comes together goes together."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from millstream.doors import Acks, Place
from millstream.doors.caller import NODE
from millstream.doors.messages import Message as LogMessage
from millstream.mqtt.failures import Failure, failure_of
from millstream.mqtt.messages import Message
from millstream.mqtt.queue_clients import send_to_new_queue, settle
from millstream.mqtt.queue_topics import PREFIX, ToSettle, settlement_of
from millstream.mqtt.wants import WantSend
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.mqtt.packets import V5
from millstream.protocol.mqtt.reasons import Reason

if TYPE_CHECKING:
    from millstream.mqtt.client import Client

# More is not read from its connection before some of it is in the log.
_MOST_BYTES: Final = 1 << 20
_MOST_MESSAGES: Final = 2_000
_Unwanted = asyncio.Task[frozenset[int]] | None
"""Identifiers of messages that nobody is subscribed to; None where that is not told."""


class Sending:
    def __init__(self, client: "Client") -> None:
        self._client = client
        self._messages = 0
        self._bytes = 0
        self._waiting: asyncio.Future[None] | None = None

    @property
    def is_full(self) -> bool:
        return self._bytes > _MOST_BYTES or self._messages > _MOST_MESSAGES

    def send_all(self, wants: list[WantSend]) -> None:
        """What came together and goes to the same partition is sent together."""
        groups: dict[Place, tuple[list[int], list[LogMessage], list[int]]] = {}
        settling: dict[tuple[str, Place], list[tuple[int, ToSettle]]] = {}
        publishing = self._client.shared.publishing
        unwanted = self._unwanted(wants)
        self._client.shared.statistics.received_messages += len(wants)
        for want in wants:
            packet_id, message = want.packet_id, want.message
            try:
                if message.topic.startswith(PREFIX) and (settled := _settled(message)) is not None:
                    settling.setdefault((settled.group, settled.place), []).append((packet_id, settled))
                    continue
                place, record = publishing.record(message)
                if message.retain:
                    self.counted(1, len(message.payload))
                    kept_place, kept = publishing.retained(message)
                    parts = (place, record), (kept_place, kept)
                    self._client.spawn(self._send_retained(packet_id, unwanted, *parts))
                    continue
            except KafkaError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and message.topic.startswith(PREFIX):
                    self._client.spawn(send_to_new_queue(self._client, want))
                else:
                    self.refused(failure_of(error), [packet_id])
                continue
            ids, records, sizes = groups.setdefault(place, ([], [], []))
            ids.append(packet_id)
            records.append(record)
            sizes.append(len(message.payload))
        for place, (ids, records, sizes) in groups.items():
            self.counted(len(ids), sum(sizes))
            self._client.spawn(self._send(place, ids, records, sum(sizes), unwanted))
        for (group, place), some in settling.items():
            self.counted(len(some), 0)
            self._client.spawn(settle(self._client, group, place, some))

    def counted(self, count: int, size: int) -> None:
        """How much more is on its way to the log."""
        self._messages += count
        self._bytes += size
        if not self._messages and self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _unwanted(self, wants: list[WantSend]) -> _Unwanted:
        """Asked for while the messages are on their way to the log."""
        unwanted = self._client.shared.unwanted
        if (
            unwanted is None
            or self._client.machine.version != V5
            or not any(want.packet_id for want in wants)
        ):
            return None
        topics = {want.packet_id: want.message.topic for want in wants if want.packet_id}

        async def packet_ids() -> frozenset[int]:
            found = await unwanted.among(topics.values())
            return frozenset(packet_id for packet_id, topic in topics.items() if topic in found)

        return asyncio.get_running_loop().create_task(packet_ids())

    async def _send(
        self, place: Place, ids: list[int], records: list[LogMessage], size: int, unwanted: _Unwanted
    ) -> None:
        acks = Acks.ALL if any(ids) else Acks.LEADER
        try:
            await self._client.shared.doors.messages.send(self._client.caller, place, records, acks=acks)
        except KafkaError as error:
            self.refused(failure_of(error), ids)
        else:
            await self._sent(ids, unwanted)
        self.counted(-len(ids), -size)
        self._client.flush()

    async def _sent(self, ids: Sequence[int], unwanted: _Unwanted) -> None:
        sent = self._client.machine.sent
        if unwanted is None:
            for packet_id in ids:
                sent(packet_id)
            return
        found = await unwanted
        for packet_id in ids:
            sent(packet_id, Reason.NO_MATCHING_SUBSCRIBERS if packet_id in found else 0)

    async def _send_retained(
        self, packet_id: int, unwanted: _Unwanted, *parts: tuple[Place, LogMessage]
    ) -> None:
        send = self._client.shared.doors.messages.send
        try:
            (place, record), (kept_place, kept) = parts
            await asyncio.gather(send(self._client.caller, place, [record]), send(NODE, kept_place, [kept]))
        except KafkaError as error:
            self.refused(failure_of(error), [packet_id])
        else:
            await self._sent([packet_id], unwanted)
        self.counted(-1, -len(parts[0][1].value or b""))
        self._client.flush()

    def refused(self, failure: Failure, ids: Sequence[int]) -> None:
        if not failure.is_final and any(ids):
            self._client.machine.close(failure.reason, failure.text)
            return
        for packet_id in ids:
            self._client.machine.sent(packet_id, failure.reason, failure.text)

    async def all_sent(self) -> None:
        """Returns when what the client has published before is in the log: it subscribes to what comes after."""
        while self._messages:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting


def _settled(message: Message) -> ToSettle | None:
    """What it settles; None for one that is a message of the queue."""
    try:
        return settlement_of(message.topic, message.properties.user_properties)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
