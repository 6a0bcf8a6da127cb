"""A connected client's link to the coordinator of its session, which batches requests of the same kind.

Requests made while an answer is awaited go together in the next one, so a busy client costs few of them.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

from millstream.doors import CoordinatorKind, Coordinators, Request
from millstream.doors.caller import Caller
from millstream.doors.mqtt_sessions import (
    Done,
    FlightStage,
    KeepReceived,
    KeptMessage,
    Position,
    Receive,
    Release,
    Reserve,
    SaveProgress,
    StoredFlight,
)
from millstream.mqtt.outbound import InFlight, Stage
from millstream.mqtt.publishing import Publishing
from millstream.mqtt.wants import WantKeepReceived, WantReceive, WantRelease, WantReserve
from millstream.protocol.errors import KafkaError

A = TypeVar("A")

_MOST_BYTES: Final = 1 << 20
_MOST_WAITING: Final = 2_000

Flights = tuple[tuple[int, StoredFlight], ...]
"""Stored flights, by packet id."""
Queued = WantReceive | WantRelease | WantReserve | WantKeepReceived


class Owner(Protocol):
    """Gets the outcomes."""

    def received(self, packet_ids: Sequence[int]) -> None: ...
    def released(self, packet_ids: Sequence[int]) -> None: ...
    def reserved(self, packet_ids: Sequence[int]) -> None: ...
    def kept_received(self, packet_ids: Sequence[int]) -> None: ...
    def failed(self, error: KafkaError, packet_ids: Sequence[int]) -> bool:
        """Returns whether the connection goes on. `packet_ids` are of messages of QoS 2 that could not be stored."""
        ...


class SessionLink:
    def __init__(
        self,
        coordinators: Coordinators,
        publishing: Publishing,
        caller: Caller,
        client_id: str,
        epoch: int,
        shard: int,
        last_number: int,
        owner: Owner,
    ) -> None:
        """`last_number`: the highest number of the flights that an earlier connection left; new ones come after it."""
        self._coordinators = coordinators
        self._publishing = publishing
        self._caller = caller
        self.client_id = client_id
        self.epoch = epoch
        self.shard = shard
        self._owner = owner
        self._queue: list[Queued] = []
        self._waiting_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._releasing: set[asyncio.Task[None]] = set()
        self._number = last_number
        self._is_over = False
        """Set when a request failed and so ends the connection: later requests must not succeed without it.

        The last reserved message tells how far the session has read the log.
        """

    async def ask(self, request: Request[A]) -> A:
        return await self._coordinators.ask(
            self._caller, CoordinatorKind.MQTT_SESSION, self.client_id, request
        )

    @property
    def is_full(self) -> bool:
        """Whether the connection should not be read until some requests are answered."""
        return self._waiting_bytes > _MOST_BYTES or len(self._queue) > _MOST_WAITING

    def add(self, want: Queued) -> None:
        self._queue.append(want)
        if type(want) is WantReceive:
            self._waiting_bytes += len(want.message.payload)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._queue:
                queue, self._queue = self._queue, []
                self._waiting_bytes = 0
                # Kinds run in parallel: a packet id has one open step, because the client waits for each answer.
                kinds: dict[type, list[Queued]] = {}
                for want in queue:
                    kinds.setdefault(type(want), []).append(want)
                await asyncio.gather(*(_GROUPS[kind](self, group) for kind, group in kinds.items()))
        finally:
            self._task = None

    async def settled(self) -> None:
        """Wait until all requests so far are answered."""
        while self._task is not None:
            await asyncio.shield(self._task)
        if self._releasing:
            await asyncio.wait(self._releasing)

    async def _receive(self, wants: list[WantReceive]) -> None:
        if self._is_over:
            return
        messages: list[tuple[int, tuple[KeptMessage, ...]]] = []
        for want in wants:
            try:
                messages.append((want.packet_id, await self._publishing.kept(want.message)))
            except KafkaError as error:
                # Only this message fails, not those that came with it.
                self._failed(error, (want.packet_id,))
        if messages:
            await self._keep(messages)

    async def _keep(self, messages: list[tuple[int, tuple[KeptMessage, ...]]]) -> None:
        if self._is_over:
            return
        packet_ids = [packet_id for packet_id, _ in messages]
        try:
            await self.ask(Receive(self.client_id, self.epoch, tuple(messages)))
        except KafkaError as error:
            self._failed(error, packet_ids)
        else:
            self._owner.received(packet_ids)

    def _failed(self, error: KafkaError, packet_ids: Sequence[int]) -> None:
        if not self._owner.failed(error, packet_ids):
            self._is_over = True

    async def _release(self, wants: list[WantRelease]) -> None:
        """Runs in the background: the answer waits for the log, and the packet ids are not reused before it."""
        packet_ids = tuple(want.packet_id for want in wants)
        tell = self._tell(Release(self.client_id, self.epoch, packet_ids), self._owner.released, packet_ids)
        task = asyncio.get_running_loop().create_task(tell)
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    async def _reserve(self, wants: list[WantReserve]) -> None:
        entries = [entry for want in wants for entry in want.entries]
        flights = self.flights(entries)
        packet_ids = tuple(entry.packet_id for entry in entries)
        shared = tuple(
            entry.packet_id
            for entry in entries
            if entry.delivery is not None and entry.delivery.outgoing.group is not None
        )
        request = Reserve(self.client_id, self.epoch, flights, shared)
        await self._tell(request, self._owner.reserved, packet_ids)

    async def _keep_received(self, wants: list[WantKeepReceived]) -> None:
        packet_ids = tuple(each for want in wants for each in want.packet_ids)
        await self._tell(
            KeepReceived(self.client_id, self.epoch, packet_ids), self._owner.kept_received, packet_ids
        )

    async def _tell(
        self, request: Request[Done], then: Callable[[Sequence[int]], None], packet_ids: Sequence[int]
    ) -> None:
        if self._is_over:
            return
        try:
            await self.ask(request)
        except KafkaError as error:
            self._failed(error, ())
        else:
            then(packet_ids)

    async def save(self, positions: Sequence[Position], acknowledged: Sequence[int]) -> None:
        await self.ask(
            SaveProgress(self.client_id, self.epoch, tuple(positions), tuple(acknowledged), self._number)
        )

    def flights(self, entries: Iterable[InFlight]) -> Flights:
        return tuple((entry.packet_id, self.flight(entry)) for entry in entries)

    def flight(self, entry: InFlight) -> StoredFlight:
        """The stored form: only where in the log the message is."""
        self._number += 1
        stage = FlightStage.RELEASED if entry.stage in (Stage.RECEIVED, Stage.RELEASED) else FlightStage.SENT
        if entry.delivery is None:
            return StoredFlight("", 0, -1, 2, 0, stage, self._number)
        delivery = entry.delivery
        place = delivery.outgoing.place
        return StoredFlight(
            place.topic,
            place.partition,
            delivery.outgoing.offset,
            delivery.qos,
            int(delivery.retain),
            stage,
            self._number,
            delivery.identifiers,
            delivery.outgoing.topic_id,
        )


_GROUPS: dict[type, Callable[[SessionLink, Any], Any]] = {
    WantReceive: SessionLink._receive,  # noqa: SLF001
    WantRelease: SessionLink._release,  # noqa: SLF001
    WantReserve: SessionLink._reserve,  # noqa: SLF001
    WantKeepReceived: SessionLink._keep_received,  # noqa: SLF001
}
