"""Which batches of aborted transactions a committed read must pass over."""

import struct
from collections.abc import Iterable

from millstream.protocol.record_batch import BatchHeader
from millstream.protocol.varint import INT64_BYTES, read_varint

_ABORT = 0
_MARKER_KEY = struct.Struct(">hh")


class AbortedTransactions:
    """Fed with the batches of one fetch in order; the broker says which producers aborted from which offset on."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._pending = sorted(aborted, key=lambda each: each[1])
        self._aborting: set[int] = set()

    def hides(self, header: BatchHeader, body: memoryview) -> bool:
        """Whether the batch belongs to an aborted transaction; markers are not hidden, they end it."""
        while self._pending and self._pending[0][1] <= header.last_offset:
            self._aborting.add(self._pending.pop(0)[0])
        if header.is_control:
            # Later transactions of the same producer may be committed.
            if header.producer_id in self._aborting and marker_type(bytes(body)) == _ABORT:
                self._aborting.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._aborting


def marker_type(records: bytes) -> int:
    """0 for abort, 1 for commit: the second number in the key of the only record of a control batch."""
    _, position = read_varint(records, 0)
    _, position = read_varint(records, position + 1, INT64_BYTES)
    _, position = read_varint(records, position)
    size, position = read_varint(records, position)
    _, kind = _MARKER_KEY.unpack_from(records[position : position + size])
    return int(kind)
