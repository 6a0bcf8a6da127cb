"""Whether a batch that recovery finds is of the leader epoch that it claims: no checksum covers that field.

The epochs that were flushed are known: each flush writes them beside the log, before anything is acknowledged. A batch
that lies before the last of them must be of the epoch that they say, and is set right where it is not, if the batch
behind it is as they say. Behind their last entry newer epochs may have begun; one bit that rotted looks like one, but
not like two batches of the same.
"""

from collections.abc import Callable

import msgspec

from millstream.protocol.record_batch import BatchHeader
from millstream.storage.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs


class EpochCheck(msgspec.Struct):
    """`newest` is the last epoch there is. A log without other replicas keeps what it can: no other node has it."""

    flushed: LeaderEpochs
    newest: int
    has_replicas: bool
    is_durable: bool
    _latest: int = UNDEFINED_EPOCH

    def __post_init__(self) -> None:
        self._latest = self.flushed.latest

    def true_epoch(self, header: BatchHeader, following: Callable[[], int | None]) -> int | None:
        """The epoch that the batch is of; None where that cannot be told. `following` is what the next batch claims."""
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
        # No checksum covers the file of the epochs either: two batches against it are right.
        is_confirmed = following() == self.flushed.epoch_of(header.last_offset + 1)
        return expected if is_confirmed else None

    def _unsure(self, claimed: int) -> int | None:
        latest = self._latest
        is_possible = claimed <= self.newest
        if self.has_replicas:
            # In a durable topic nothing was confirmed of an epoch that was not flushed: it need not be kept.
            if self.is_durable or not is_possible:
                return None
        elif not latest < claimed <= self.newest:
            return None if latest == UNDEFINED_EPOCH else latest
        self._latest = claimed
        return claimed
