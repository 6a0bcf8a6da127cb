"""Leader epochs and their start offsets: the leader-epoch-checkpoint file, in Kafka's text format.

0
<number of entries>
<epoch> <start offset>
...
"""

import bisect
from itertools import pairwise

from millstream.protocol.errors import ErrorCode, KafkaError

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1
_FOR_EVER = 2**63


class LeaderEpochs:
    """Epochs and their start offsets, both increasing."""

    __slots__ = ("_epochs", "_starts", "dirty")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._epochs = [epoch for epoch, _ in entries or ()]
        self._starts = [start for _, start in entries or ()]
        self.dirty = False

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        return self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Begin `epoch` at `start_offset`; entries of the same or a later epoch or offset are dropped."""
        if self._epochs and self._epochs[-1] == epoch and self._starts[-1] <= start_offset:
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.dirty = True

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch at or below `epoch`, and where it ended."""
        if epoch == UNDEFINED_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        after = bisect.bisect_right(self._epochs, epoch)
        if after == 0:
            return epoch, self._starts[0]
        return self._epochs[after - 1], self._starts[after]

    def epoch_of(self, offset: int) -> int:
        at = bisect.bisect_right(self._starts, offset) - 1
        return self._epochs[at] if at >= 0 else UNDEFINED_EPOCH

    def span_of(self, offset: int) -> tuple[int, int]:
        """The epoch that wrote `offset`, -1 if unknown, and the offset up to which that holds."""
        at = bisect.bisect_right(self._starts, offset)
        until = self._starts[at] if at < len(self._starts) else _FOR_EVER
        return (self._epochs[at - 1] if at else UNDEFINED_EPOCH), until

    def expected_at(self, offset: int) -> tuple[int, bool]:
        """The epoch that wrote `offset`, -1 if unknown, and whether it is the last known epoch."""
        at = bisect.bisect_right(self._starts, offset)
        return (self._epochs[at - 1] if at else UNDEFINED_EPOCH), at == len(self._starts)

    def truncate_from_end(self, end_offset: int) -> None:
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
            self.dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop epochs that lie wholly before the log's start; the one that covers the start now begins there."""
        at = bisect.bisect_right(self._starts, start_offset) - 1
        if at > 0:
            del self._epochs[:at], self._starts[:at]
            self.dirty = True
        if at >= 0 and self._starts[0] < start_offset:
            self._starts[0] = start_offset
            self.dirty = True

    def encode(self) -> bytes:
        lines = ["0", str(len(self._epochs)), *(f"{e} {s}" for e, s in self.entries)]
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> "LeaderEpochs":
        try:
            version, count, *lines = data.decode().split("\n")
            pairs = [tuple(map(int, line.split())) for line in lines if line]
            entries = [(epoch, start) for epoch, start in pairs]
            if version != "0" or int(count) != len(entries):
                raise ValueError(f"version {version}, {count} entries announced, {len(entries)} found")
            if any(before[0] >= after[0] or before[1] >= after[1] for before, after in pairwise(entries)):
                raise ValueError("entries do not follow each other")
        except ValueError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} cannot be read: {error}") from None
        return cls(entries)
