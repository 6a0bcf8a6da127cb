"""Follows one partition of the log from an offset on; each record is handled once for all subscribers."""

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import aclosing
from itertools import islice
from typing import Final

from millstream.doors import PartitionAccess, Place
from millstream.doors.caller import Caller
from millstream.observability.logs import get_logger
from millstream.observability.tasks import keep_going
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import BatchHeader
from millstream.protocol.records import Record

log = get_logger("millstream.mqtt")

# Records and deliveries before the loop gets a turn: about 60 ms. Fewer would mean more writes to each client.
_WORK_AT_ONCE: Final = 20_000
_FIRST_AT_ONCE: Final = 50
_PAUSE_SECONDS: Final = 0.5


def unreadable(place: Place) -> Callable[[BatchHeader, KafkaError], None]:
    """Logs a batch that cannot be opened. It is skipped: subscribers would wait behind it forever."""

    def pass_over(header: BatchHeader, error: KafkaError) -> None:
        log.warning(
            "batch unreadable",
            effect="skipped for MQTT clients",
            place=str(place),
            offset=header.base_offset,
            error=error.message,
        )

    return pass_over


class Tail:
    """`take` gets batches of records in order, and returns the number of deliveries. `position` is the next offset."""

    def __init__(
        self,
        partitions: PartitionAccess,
        caller: Caller,
        place: Place,
        offset: int,
        take: Callable[[Place, list[Record]], int],
        topic_id: bytes,
    ) -> None:
        self.place = place
        self.position = offset
        self.topic_id = topic_id
        """The id of the topic that `position` refers to: the topic may be recreated."""
        self._partitions = partitions
        self._caller = caller
        self._take = take
        self._task: asyncio.Task[None] | None = None
        self._has_moved = asyncio.Event()
        self._at_once = _FIRST_AT_ONCE

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(
            keep_going(self._run), name=f"mqtt tail {self.place}"
        )

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        self.cancel()
        if self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def begin_again(self, topic_id: bytes) -> None:
        """The topic was recreated: read it from the start."""
        self.cancel()
        self.position, self.topic_id = 0, topic_id
        self.start()
        self._tell()

    async def reach_end(self) -> None:
        """Wait until everything that readers can see now is handled."""
        topic_id = None
        while topic_id != self.topic_id:
            topic_id = self.topic_id
            offsets = await self._partitions.offsets(self._caller, self.place)
            while self.position < offsets.latest and topic_id == self.topic_id:
                await self._has_moved.wait()

    async def _run(self) -> None:
        while True:
            try:
                await self._follow()
            except KafkaError as error:
                if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    await self._go_where_there_is_something()
                else:
                    log.info("following interrupted", place=str(self.place), error=error.message)
                    await asyncio.sleep(_PAUSE_SECONDS)

    async def _follow(self) -> None:
        async with aclosing(self._partitions.follow(self._caller, self.place, self.position)) as reads:  # type: ignore[type-var]
            async for read in reads:
                records = read.records(await read.open(), unreadable(self.place))
                while some := list(islice(records, self._at_once)):
                    self._handle(some)
                    if len(some) > 1:
                        await asyncio.sleep(0)
                self._move(read.next_offset)

    def _handle(self, records: list[Record]) -> None:
        # Set first, because handlers may ask for the position.
        self.position = records[-1].offset + 1
        work = len(records) + self._take(self.place, records)
        self._at_once = max(1, min(_WORK_AT_ONCE * len(records) // work, self._at_once * 2))

    def _move(self, offset: int) -> None:
        self.position = max(self.position, offset)
        self._tell()

    def _tell(self) -> None:
        moved, self._has_moved = self._has_moved, asyncio.Event()
        moved.set()

    async def _go_where_there_is_something(self) -> None:
        """Skip what retention deleted before it was read; a recreated log begins at 0."""
        try:
            offsets = await self._partitions.offsets(self._caller, self.place)
        except KafkaError:
            await asyncio.sleep(_PAUSE_SECONDS)
            return
        self.position = min(max(self.position, offsets.earliest), offsets.latest)
        self._move(self.position)
