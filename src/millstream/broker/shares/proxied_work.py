"""A share session's request from a client that knows only this node, which asks the partitions' leaders for it."""

from collections.abc import Iterable, Sequence
from typing import Any

from millstream.broker.shares.acknowledgements import AcknowledgementBatch, settlements
from millstream.broker.shares.anywhere import led, take_anywhere
from millstream.broker.shares.session_work import NOWHERE, SessionWork, Work, check_known
from millstream.broker.shares.sessions import Place, ShareSession
from millstream.broker.shares.taken import Taken, Wanted
from millstream.coordinator.shares import queue_values
from millstream.doors import partitions
from millstream.doors.caller import Caller
from millstream.doors.queues import Acquired, Queues, Settlement, SettlementKind, incarnation_of
from millstream.protocol.errors import ErrorCode, KafkaError


class ProxiedWork(Work):
    decides_here = False

    def __init__(self, all_work: SessionWork, session: ShareSession, queues: Queues, caller: Caller) -> None:
        super().__init__(all_work, session)
        self._queues = queues
        self._caller = caller

    def settle_here(self, _topics: Iterable[Any], *, renewing: bool) -> bool:  # noqa: ARG002
        """Never: other nodes may have to answer."""
        return False

    async def fetch(self, wanted: Wanted, max_wait_s: float) -> None:
        self.errors.clear()
        places: dict[partitions.Place, Place] = {}
        for place in self.session.in_turn():
            try:
                places[self._named(place)] = place
            except KafkaError as error:
                self.errors[place] = error.as_value()

        async def acquire(place: partitions.Place, wait_s: float) -> Acquired:
            return await self._queues.acquire(
                self._caller,
                self.session.group_id,
                self.session.member,
                place,
                max_messages=wanted.max_records,
                max_bytes=wanted.max_bytes,
                max_wait_s=wait_s,
                whole_batches=wanted.whole_batches,
            )

        async def give_back(acquired: Acquired) -> None:
            session, settlements = self.session, acquired.undelivered()
            place = acquired.read.place
            await self._queues.settle(self._caller, session.group_id, session.member, place, settlements)

        try:
            found = await take_anywhere(acquire, give_back, led(self._all.image(), list(places)), max_wait_s)
        except KafkaError:
            # A leader is unavailable: the client asks again.
            return
        for each in found:
            ranges = tuple(
                queue_values.Acquired(one.first_offset, one.last_offset, one.delivery_count)
                for one in each.ranges
            )
            self.taken[places[each.read.place]] = Taken(
                ranges, (each.read.batches,), each.locked_until_ms, each.lock_ms
            )

    async def release(self) -> None:
        await self._queues.release_all(self._caller, self.session.group_id, self.session.member)

    async def stored(self) -> None:
        """Nothing to wait for: each node answered after it stored its part."""

    def lock_ms(self) -> int:
        return self._shares.lock_ms(self.session.group_id)

    async def _settle(
        self, place: Place, batches: Sequence[AcknowledgementBatch], renewing: bool
    ) -> KafkaError | None:
        try:
            given = [
                Settlement(
                    each.first,
                    each.last,
                    SettlementKind(each.outcome),
                    incarnation=incarnation_of(place[0].bytes),
                )
                for each in settlements(batches, renewing=renewing)
            ]
            named = self._named(place)
            # The client gets one result for a whole partition.
            outcomes = await self._queues.settle(
                self._caller, self.session.group_id, self.session.member, named, given, together=True
            )
        except KafkaError as error:
            return error
        refused = next((each for each in outcomes if each.error != ErrorCode.NONE), None)
        return None if refused is None else KafkaError(ErrorCode(refused.error), refused.message)

    def _leader(self, _place: Place) -> tuple[int, int]:
        """No leader is named: the client knows no other node."""
        return NOWHERE

    def _named(self, place: Place) -> partitions.Place:
        return partitions.Place(check_known(self._all.image(), *place), place[1])
