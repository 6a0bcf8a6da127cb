"""Appends to and reads from partitions: in this process where this node leads them, else by calls to their leaders."""

from collections.abc import AsyncIterator, Callable

from millstream.broker.routing.calls import Append, FindOffsetAt, FindOffsets, Read
from millstream.broker.routing.follow import Follows
from millstream.broker.routing.routes import Routes
from millstream.doors.access import Authoriser
from millstream.doors.caller import Caller
from millstream.doors.partitions import Acks, Appended, Isolation, LogRead, OffsetAt, Offsets, Place
from millstream.protocol.record_batch import HEADER_SIZE, read_header

# Time to find a leader, added to the caller's wait time.
_PATIENCE_SECONDS = 10.0


class RoutedPartitions:
    def __init__(self, routes: Routes, authoriser: Authoriser) -> None:
        self._routes = routes
        self._follows = Follows(self, authoriser)

    def close(self) -> None:
        self._follows.close()

    async def append(
        self,
        caller: Caller,
        place: Place,
        batch: bytes | bytearray | memoryview,
        *,
        acks: Acks = Acks.ALL,
        timeout_s: float = 30.0,
        patience_s: float | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> Appended:
        view = memoryview(batch)
        return await self._routes.at_leader(
            caller,
            place,
            Append(place, view, acks, timeout_s),
            patience_s=timeout_s,
            wait_s=timeout_s,
            refused_s=patience_s,
            is_wanted=is_wanted,
            # Numbered batches may be repeated: the leader finds duplicates in its log.
            may_repeat=len(view) >= HEADER_SIZE and read_header(view).producer_id >= 0,
        )

    async def read(
        self,
        caller: Caller,
        place: Place,
        offset: int,
        *,
        max_bytes: int = 1 << 20,
        max_wait_s: float = 0.0,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        topic_id: bytes | None = None,
    ) -> LogRead:
        """Read the topic that has the name now, or had it when the caller asked for `identity`."""
        if topic_id is None:
            topic_id = self.identity(place)
        return await self._routes.at_leader(
            caller,
            place,
            Read(place, offset, max_bytes, max_wait_s, isolation, topic_id),
            patience_s=max_wait_s + _PATIENCE_SECONDS,
            wait_s=max_wait_s,
            may_repeat=True,
            topic_id=topic_id,
        )

    def identity(self, place: Place) -> bytes:
        """The topic's id, which differs from that of other topics of the name; empty where there is no such topic."""
        topic = self._routes.metadata.image.topic(place.topic)
        return b"" if topic is None else topic.topic_id.bytes

    async def offsets(self, caller: Caller, place: Place) -> Offsets:
        topic_id = self.identity(place)
        return await self._routes.at_leader(
            caller,
            place,
            FindOffsets(place, topic_id),
            patience_s=_PATIENCE_SECONDS,
            may_repeat=True,
            topic_id=topic_id,
        )

    async def offset_at(self, caller: Caller, place: Place, timestamp_ms: int) -> OffsetAt | None:
        return await self._routes.at_leader(
            caller, place, FindOffsetAt(place, timestamp_ms), patience_s=_PATIENCE_SECONDS, may_repeat=True
        )

    def follow(
        self, caller: Caller, place: Place, offset: int, *, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> AsyncIterator[LogRead]:
        return self._follows.follow(caller, place, offset, isolation)
