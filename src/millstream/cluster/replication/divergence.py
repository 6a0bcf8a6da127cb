"""Where a follower's log parts from its leader's, found by epochs (KIP-101, KIP-279, KIP-320, KIP-595)."""

from typing import NamedTuple

from millstream.storage.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs


class EpochEnd(NamedTuple):
    """The largest epoch at or below the one asked for, and where it ended; -1 and -1 where there is none."""

    epoch: int
    end_offset: int


def find_divergence(
    epochs: LeaderEpochs, log_end_offset: int, fetch_offset: int, last_fetched_epoch: int
) -> EpochEnd | None:
    """What a leader answers a reader whose last batch before `fetch_offset` was of that epoch; None when they agree."""
    if last_fetched_epoch == UNDEFINED_EPOCH:
        return None
    found = EpochEnd(*epochs.end_offset(last_fetched_epoch, log_end_offset))
    if found.epoch < last_fetched_epoch or found.end_offset < fetch_offset:
        return found
    return None


def truncation_offset(epochs: LeaderEpochs, log_end_offset: int, diverging: EpochEnd) -> int:
    """Up to where a follower keeps its log: there it asks again, with the epoch that it ends with then.

    Nothing that both logs hold is given up.
    """
    own = EpochEnd(*epochs.end_offset(diverging.epoch, log_end_offset))
    if own.epoch == UNDEFINED_EPOCH:
        # All of the follower's epochs are older: none of its batches is behind the leader's end of that epoch.
        return min(diverging.end_offset, log_end_offset)
    if own.epoch < diverging.epoch:
        # The leader's epoch is unknown here: what follows the last common candidate is in doubt, and asked about next.
        return min(own.end_offset, log_end_offset)
    return min(diverging.end_offset, own.end_offset, log_end_offset)
