"""Cleans up the partitions of deleted topics, a slice in each turn of the event loop: there may be very many."""

from collections import deque
from collections.abc import Iterable

from millstream.broker.machine import Tasks
from millstream.broker.partitions.partition import Partition
from millstream.broker.server.long_work import SLICE_ELEMENTS, LongWork
from millstream.observability.logs import get_logger
from millstream.observability.tasks import keep_going
from millstream.storage.store import LogStore

log = get_logger("millstream.topics")


class RetiredPartitions:
    """Closes the partitions' files and notifies their waiters. The partitions are already unregistered, and their
    directories moved away.
    """

    def __init__(self, store: LogStore, tasks: Tasks, long_work: LongWork) -> None:
        self._store = store
        self._tasks = tasks
        self._long_work = long_work
        self._waiting: deque[Partition] = deque()

    def let_go(self, partitions: Iterable[Partition]) -> None:
        """Clean up a few of them now, the others in later turns."""
        is_under_way = bool(self._waiting)
        self._waiting.extend(partitions)
        if is_under_way:
            return
        self._slice()
        if self._waiting:
            self._tasks.spawn(keep_going(self._go_on), "deleted topics")

    def finish(self) -> None:
        """The node stops: clean up the rest now."""
        while self._waiting:
            self._slice()

    async def _go_on(self) -> None:
        while self._waiting:
            await self._long_work.pause()
            self._slice()

    def _slice(self) -> None:
        for _ in range(min(SLICE_ELEMENTS, len(self._waiting))):
            self._let_go(self._waiting.popleft())

    def _let_go(self, partition: Partition) -> None:
        try:
            self._store.let_go(partition.log)
        except OSError as error:
            log.warning(
                "a deleted partition leaves something behind",
                topic=partition.topic,
                partition=partition.index,
                error=str(error),
            )
        if partition.log.offline is not None:
            partition.fail(partition.log.offline)
