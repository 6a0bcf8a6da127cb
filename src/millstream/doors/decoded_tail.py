"""A cache of decoded messages of queues: the consumers of a queue read the same few batches in turn."""

from collections import OrderedDict
from collections.abc import Iterator

from millstream.doors.partitions import LogRead, Opened, PassOver, Place, open_in_thread, opened_or_error
from millstream.protocol.errors import KafkaError
from millstream.protocol.records import Record

_Batch = tuple[int, int]
"""Base offset and checksum: after truncation, another batch may begin at the same offset."""


class _Kept:
    def __init__(self) -> None:
        self.batches: OrderedDict[_Batch, tuple[list[Record], int]] = OrderedDict()
        self.messages = 0
        self.bytes = 0


class DecodedTail:
    """Keeps the last `most_messages`, with at most `most_bytes` of values, per partition; 0 messages disables it."""

    def __init__(self, most_messages: int, *, most_bytes: int = 16 << 20, most_partitions: int = 64) -> None:
        self._most = most_messages
        self._most_bytes = most_bytes
        self._most_partitions = most_partitions
        self._partitions: OrderedDict[Place, _Kept] = OrderedDict()

    async def open(self, read: LogRead) -> Opened:
        """As `LogRead.open`."""
        kept = self._of(read.place) if self._most else _Kept()
        return await open_in_thread(
            each for each in read.headers() if (each[0].base_offset, each[0].crc) not in kept.batches
        )

    def records(self, read: LogRead, opened: Opened, pass_over: PassOver | None = None) -> Iterator[Record]:
        """As `LogRead.records`."""
        if not self._most:
            yield from read.records(opened, pass_over)
            return
        kept = self._of(read.place)
        for header, batch in read.headers():
            if header.is_control:
                continue
            key = (header.base_offset, header.crc)
            found = kept.batches.get(key)
            if found is None:
                records = opened_or_error(header, batch, opened)
                if isinstance(records, KafkaError):
                    if pass_over is None:
                        raise records
                    pass_over(header, records)
                    continue
                found = (records, sum(len(record.value or b"") for record in records))
                self._keep(kept, key, found)
            for record in found[0]:
                if record.offset >= read.offset:
                    yield record

    def _of(self, place: Place) -> _Kept:
        kept = self._partitions.get(place)
        if kept is None:
            kept = self._partitions[place] = _Kept()
            if len(self._partitions) > self._most_partitions:
                self._partitions.popitem(last=False)
        self._partitions.move_to_end(place)
        return kept

    def _keep(self, kept: _Kept, key: _Batch, batch: tuple[list[Record], int]) -> None:
        kept.batches[key] = batch
        kept.messages += len(batch[0])
        kept.bytes += batch[1]
        while kept.batches and (kept.messages > self._most or kept.bytes > self._most_bytes):
            _, (records, size) = kept.batches.popitem(last=False)
            kept.messages -= len(records)
            kept.bytes -= size
