"""Checks the leader epochs of batches during recovery, because no checksum covers that field.

Each flush writes the epochs beside the log before anything is acknowledged. A batch before the last flushed epoch must
agree with them; if it does not, but the next batch does, its epoch is corrected. After the last flushed epoch, newer
ones may have begun: a single batch may have a flipped bit, so two batches of the same epoch are needed.
"""

from collections.abc import Callable

import msgspec

from millstream.protocol.record_batch import BatchHeader
from millstream.storage.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs


class EpochCheck(msgspec.Struct):
    """`newest` is the partition's latest epoch. A log without other replicas keeps as much as possible."""

    flushed: LeaderEpochs
    newest: int
    has_replicas: bool
    is_durable: bool
    _latest: int = UNDEFINED_EPOCH

    def __post_init__(self) -> None:
        self._latest = self.flushed.latest

    def true_epoch(self, header: BatchHeader, following: Callable[[], int | None]) -> int | None:
        """The batch's true epoch, or None if unknown. `following` returns the epoch that the next batch claims."""
        claimed, latest = header.leader_epoch, self._latest
        expected, is_last = self.flushed.expected_at(header.base_offset)
        if not is_last:
            return self._within(header, expected, following)
        if claimed == latest:
            return claimed
        after = following()
        if after == latest:
            return latest
        if latest < claimed <= self.newest and after == claimed:
            self._latest = claimed
            return claimed
        return self._unsure(claimed)

    def _within(self, header: BatchHeader, expected: int, following: Callable[[], int | None]) -> int | None:
        if expected == UNDEFINED_EPOCH:
            return header.leader_epoch if header.leader_epoch <= self.newest else None
        if header.leader_epoch == expected or not self.has_replicas:
            return expected
        # The file of the epochs has no checksum either: if two batches contradict it, they are right.
        is_confirmed = following() == self.flushed.epoch_of(header.last_offset + 1)
        return expected if is_confirmed else None

    def _unsure(self, claimed: int) -> int | None:
        latest = self._latest
        is_possible = claimed <= self.newest
        if self.has_replicas:
            # In a durable topic nothing of an unflushed epoch was acknowledged, so it need not be kept.
            if self.is_durable or not is_possible:
                return None
        elif not latest < claimed <= self.newest:
            return None if latest == UNDEFINED_EPOCH else latest
        self._latest = claimed
        return claimed
