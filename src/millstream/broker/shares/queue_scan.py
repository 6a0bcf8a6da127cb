"""Looks into a queue's records for keys, priorities and times, a slice in a turn of the event loop.

All queues share the work of a turn. A batch that takes long to open is opened in a thread.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from millstream.broker.shares.log_view import SCAN_BYTES, Looked, ReadBatch, look, look_apart
from millstream.broker.shares.turns import Turns
from millstream.coordinator.shares.engine import MOST_SCANNED, QueueEngine

# How many records of a batch may be unpacked again for each new record that is scanned.
_WORTH = 100


class QueueScan:
    def __init__(
        self,
        name: str,
        read: Callable[[int, int], list[ReadBatch]],
        upper: Callable[[], int],
        turns: Turns,
        loop: asyncio.AbstractEventLoop,
        looked: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`upper` is the offset before which records may be seen. `looked` is called when the scan may continue."""
        self._name = name
        self._read = read
        self._upper = upper
        self._turns = turns
        self._loop = loop
        self._looked = looked
        self._failed = failed
        # A thread's results from a large batch, and how much of it was unpacked if the scan ended within it.
        self._slices: deque[Looked] = deque()
        self._opened = 0
        self._awaits_turn = False
        self._looking: asyncio.Task[None] | None = None

    def begin_anew(self) -> None:
        """The settings have changed, by which records are read."""
        self._slices.clear()

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    def is_due(self, engine: QueueEngine) -> bool:
        """Whether there is something to look at, and no turn is awaited for it."""
        return not self._awaits_turn and self._is_wanted(engine)

    def look_into(self, engine: QueueEngine) -> None:
        """Scan records, up to a limit that all queues share in a turn, so that no long log or large batch blocks it."""
        if self.is_due(engine) and (self._turns.is_over or self._look_at_slice(engine)):
            self._awaits_turn = True
            self._turns.call_next(self._continue)

    def _is_wanted(self, engine: QueueEngine) -> bool:
        if not engine.wants_scan(self._upper()):
            return False
        # The earlier part of the batch is unpacked again, which must not happen for each settled message.
        return bool(self._slices) or engine.room_to_scan >= min(self._opened // _WORTH, MOST_SCANNED // 4)

    def _look_at_slice(self, engine: QueueEngine) -> bool:
        """Scan one slice; whether to continue in another turn."""
        if self._slices:
            looked: Looked | ReadBatch = self._slices.popleft()
        else:
            looked = look(self._read(engine.scanned, SCAN_BYTES), engine.scanned, self._upper())
            self._opened = 0
        if isinstance(looked, Looked):
            engine.observe(looked.marks, looked.upto)
            self._turns.use(looked.elements)
            return self._is_wanted(engine)
        self._awaits_turn = True
        self._looking = self._loop.create_task(self._look_apart(looked, engine), name=self._name)
        return False

    def _continue(self) -> None:
        self._awaits_turn = False
        self._looked()

    async def _look_apart(self, batch: ReadBatch, engine: QueueEngine) -> None:
        policy, upper, offset = engine.policy, self._upper(), engine.scanned
        job = partial(look_apart, batch, offset, upper, engine.room_to_scan)
        try:
            slices = await self._turns.apart(job)
        except Exception as error:  # noqa: BLE001 - consumers would wait for ever
            self._looking = None
            self._failed(error)
            return
        if engine.policy == policy and offset <= engine.scanned and upper <= self._upper():
            self._slices.extend(slices)
            self._opened = slices[-1].upto - batch.batch.first if slices[-1].upto <= batch.batch.last else 0
        self._continue()
