"""Reads a partition's log for a queue's consumers, which mostly want neighbouring records in the same turn."""

from collections.abc import Callable

from millstream.broker.partitions.partition import Partition
from millstream.broker.shares.log_view import ReadBatch, read_batches
from millstream.protocol.errors import KafkaError

_READ_BYTES = 16 << 10
_MOST_READ_BYTES = 4 << 20


class QueueReader:
    def __init__(
        self,
        partition: Partition,
        failed: Callable[[Partition, int, KafkaError], None],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """`failed` is called with damage that another replica may repair."""
        self._partition = partition
        self._failed = failed
        self._call_soon = call_soon
        self._record_bytes = 1_000
        # What was read in this turn of the loop.
        self._read_now: list[ReadBatch] = []

    def read(self, offset: int, max_bytes: int, upper: int) -> list[ReadBatch]:
        """Whole batches from `offset` on; KafkaError where they are damaged."""
        try:
            return read_batches(self._partition, offset, max_bytes, upper)
        except KafkaError as error:
            self._failed(self._partition, offset, error)
            raise

    def read_for(self, count: int, offset: int, max_bytes: int, upper: int) -> list[ReadBatch]:
        """Like `read`, with enough bytes for `count` records, estimated from earlier ones."""
        most = min(max_bytes, max(2 * count * self._record_bytes, _READ_BYTES), _MOST_READ_BYTES)
        read = self._read_before(offset, most)
        if not read:
            read = self.read(offset, most, upper)
            if read:
                records = read[-1].batch.last - read[0].batch.first + 1
                self._record_bytes = sum(len(each.data) for each in read) // records + 1
                self._read_now = read
                self._call_soon(self._forget)
        return read

    def _read_before(self, offset: int, most: int) -> list[ReadBatch]:
        """Batches read for another consumer in this turn of the loop: they usually hold the next records too."""
        found: list[ReadBatch] = []
        for each in self._read_now:
            if each.batch.last >= offset and (each.batch.first <= offset or found):
                most -= len(each.data)
                if found and most < 0:
                    break
                found.append(each)
        return found

    def _forget(self) -> None:
        self._read_now = []
