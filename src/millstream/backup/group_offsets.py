"""Consumers' positions in a restored cluster: none may lie behind the end of the log that it is a position in.

A log that ends earlier than it did, because it is restored to a moment, gives out again the offsets that it lost. A
consumer that went on at its old position would pass over what they name now, so such a position becomes the log's end.
"""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from millstream.coordinator.groups.record_codec import decode_record, encode_record
from millstream.coordinator.groups.records import CommittedOffset, GroupRecord, OffsetKey
from millstream.protocol.record_batch import iter_batches, read_header
from millstream.protocol.records import Record, encode_batch, iter_records
from millstream.storage.log import PartitionLog

_READ_BYTES = 1 << 20
_OPEN_LIMIT_BYTES = 256 << 20


def set_back(log: PartitionLog, ends: Mapping[tuple[str, int], int], leader_epoch: int, now_ms: int) -> int:
    """Append a new commit for every position of this partition that lies too far ahead; returns their number."""
    positions: dict[OffsetKey, CommittedOffset] = {}
    for record in _records(log):
        found = decode_record(record.key, record.value) if record.key is not None else None
        if found is None or not isinstance(found.key, OffsetKey):
            continue
        if isinstance(found.value, CommittedOffset):
            positions[found.key] = found.value
        else:
            positions.pop(found.key, None)
    ahead = [
        GroupRecord(key, replace(position, offset=end))
        for key, position in positions.items()
        if (end := ends.get((key.topic, key.partition))) is not None and position.offset > end
    ]
    if ahead:
        records = [Record(number, now_ms, *encode_record(each)) for number, each in enumerate(ahead)]
        batch = memoryview(bytearray(encode_batch(records)))
        log.append(batch, read_header(batch), leader_epoch, now_ms)
    return len(ahead)


def _records(log: PartitionLog) -> Iterator[Record]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, _READ_BYTES, log.log_end_offset)
        if not read.data:
            return
        for at, header in iter_batches(read.data):
            if not header.is_control:
                yield from iter_records(read.data[at : at + header.size_bytes], _OPEN_LIMIT_BYTES)
        offset = read.next_offset
