"""Sends a client's messages of QoS 0 and 1 to the log, batched as they arrive."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from millstream.doors import Acks, Place
from millstream.doors.caller import NODE
from millstream.doors.messages import Message as LogMessage
from millstream.mqtt.queue_clients import send_to_new_queue, settle, settled_by
from millstream.mqtt.queue_topics import PREFIX, ToSettle
from millstream.mqtt.wants import Failure, WantSend, failure_of
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.mqtt.packets import V5
from millstream.protocol.mqtt.reasons import Reason

if TYPE_CHECKING:
    from millstream.mqtt.client import Client

# Beyond these, the connection is not read until some messages are in the log.
_MOST_BYTES: Final = 1 << 20
_MOST_MESSAGES: Final = 2_000
_Unwanted = asyncio.Task[frozenset[int]] | None
"""Packet ids of messages that nobody is subscribed to; None if that is not reported."""


class _Group(msgspec.Struct):
    """Messages sent together, their packet ids, and copies to retain with their places."""

    ids: list[int]
    records: list[LogMessage]
    copies: list[tuple[int, Place, LogMessage]]
    size: int = 0


class Sending:
    def __init__(self, client: "Client") -> None:
        self._client = client
        self._messages = 0
        self._bytes = 0
        self._waiting: asyncio.Future[None] | None = None
        self._unacknowledged: set[asyncio.Task[None]] = set()

    @property
    def is_full(self) -> bool:
        return self._bytes > _MOST_BYTES or self._messages > _MOST_MESSAGES

    def send_all(self, wants: list[WantSend]) -> None:
        """Send together what arrived together for the same partition."""
        groups: dict[tuple[Place, bool], _Group] = {}
        settling: dict[tuple[str, Place], list[tuple[int, ToSettle]]] = {}
        publishing = self._client.shared.publishing
        unwanted = self._unwanted(wants)
        self._client.shared.statistics.received_messages += len(wants)
        for want in wants:
            packet_id, message = want.packet_id, want.message
            try:
                if message.topic.startswith(PREFIX) and (settled := settled_by(message)) is not None:
                    settling.setdefault((settled.group, settled.place), []).append((packet_id, settled))
                    continue
                place, record = publishing.record(message)
                copy = publishing.retained(message) if message.retain else None
            except KafkaError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and message.topic.startswith(PREFIX):
                    self._client.spawn(send_to_new_queue(self._client, want))
                else:
                    self.refused(failure_of(error), [packet_id])
                continue
            # QoS 0 never shares an append with QoS 1: messages that take turns on two paths could change order.
            group = groups.setdefault((place, bool(packet_id)), _Group([], [], []))
            group.ids.append(packet_id)
            group.records.append(record)
            if copy is not None:
                group.copies.append((packet_id, *copy))
            group.size += len(message.payload)
        for (place, _), group in groups.items():
            self.counted(len(group.ids), group.size)
            sending = self._client.spawn(self._send(place, group, unwanted))
            if any(group.ids):
                self._unacknowledged.add(sending)
                sending.add_done_callback(self._unacknowledged.discard)
        for (name, place), some in settling.items():
            self.counted(len(some), 0)
            self._client.spawn(settle(self._client, name, place, some))

    def give_up(self) -> None:
        """Stop trying to send messages of QoS 1, which their publisher sends again on its next connection.

        They must not come behind newer ones from there: as a retained message, the older one would stay.
        """
        for sending in list(self._unacknowledged):
            sending.cancel()

    def counted(self, count: int, size: int) -> None:
        """Count messages on their way to the log."""
        self._messages += count
        self._bytes += size
        if not self._messages and self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _unwanted(self, wants: list[WantSend]) -> _Unwanted:
        """Ask for subscribers while the messages are on their way to the log."""
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

    async def _send(self, place: Place, group: "_Group", unwanted: _Unwanted) -> None:
        loop = asyncio.get_running_loop()
        copies = {each[0]: loop.create_task(self._keep(*each[1:])) for each in group.copies}
        ids, acks = group.ids, Acks.ALL if any(group.ids) else Acks.LEADER
        try:
            await self._client.shared.doors.messages.send(
                self._client.caller, place, group.records, acks=acks
            )
            failed = {number: why for number, copy in copies.items() if (why := await copy) is not None}
            await self._sent([number for number in ids if number not in failed], unwanted)
            for number, why in failed.items():
                self.refused(failure_of(why), [number])
        except KafkaError as error:
            self.refused(failure_of(error), ids)
        except asyncio.CancelledError:
            for copy in copies.values():
                copy.cancel()
            raise
        finally:
            self.counted(-len(ids), -group.size)
        self._client.flush()

    async def _keep(self, place: Place, copy: LogMessage) -> KafkaError | None:
        """Store the retained copy. Returns the error, if any."""
        try:
            await self._client.shared.doors.messages.send(NODE, place, [copy])
        except KafkaError as error:
            return error
        return None

    async def _sent(self, ids: Sequence[int], unwanted: _Unwanted) -> None:
        sent = self._client.machine.sent
        if unwanted is None:
            for packet_id in ids:
                sent(packet_id)
            return
        found = await unwanted
        for packet_id in ids:
            sent(packet_id, Reason.NO_MATCHING_SUBSCRIBERS if packet_id in found else 0)

    def refused(self, failure: Failure, ids: Sequence[int]) -> None:
        if not failure.is_final and any(ids):
            self._client.machine.close(failure.reason, failure.text)
            return
        for packet_id in ids:
            self._client.machine.sent(packet_id, failure.reason, failure.text)

    async def all_sent(self) -> None:
        """Wait until what the client has published so far is in the log, so that a new subscription starts after it."""
        while self._messages:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
