"""When the first unsettled message of a queue was written."""

from collections.abc import Callable

from millstream.broker.shares.log_view import ReadBatch
from millstream.protocol.errors import KafkaError


class OldestMessage:
    def __init__(self) -> None:
        self._offset = -1
        self.written_ms = -1
        """As last read; -1 if the log could not be read there."""

    def look(self, offset: int, read: Callable[[int], list[ReadBatch]]) -> int:
        """Read its batch, unless that was done; returns how many bytes were read."""
        if offset == self._offset:
            return 0
        try:
            found = read(offset)
        except KafkaError:
            found = []
        self._offset, self.written_ms = (offset, found[0].batch.newest_ms) if found else (-1, -1)
        return sum(len(each.data) for each in found)
