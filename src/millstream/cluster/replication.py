"""What the leader of a partition knows of its replicas, and what follows from it: in-sync set and high watermark.

The controller decides the in-sync set and announces it in the metadata. While a requested change is not committed, the
high watermark waits for the members of both the old and the new set.

Below: where a follower's log parts from its leader's, found by epochs (KIP-101, KIP-279, KIP-320, KIP-595). No disk, no
socket; time comes in as an argument.
"""

from collections.abc import Container, Iterable
from typing import NamedTuple

import msgspec

from millstream.runtime.invariant import invariant
from millstream.storage.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs

UNKNOWN = -1


class FollowerProgress(msgspec.Struct):
    """Times are seconds of any clock that does not jump."""

    end_offset: int = UNKNOWN
    """What the follower has, on disk where the topic is durable: the offset of its last fetch."""
    log_start_offset: int = UNKNOWN
    is_damaged: bool = False
    """Some of its records cannot be read, but other replicas have them."""
    broker_epoch: int = UNKNOWN
    caught_up_at: float = float("-inf")
    """The last time at which it had all of the leader's records."""
    _fetched_at: float = float("-inf")
    _leader_end_at_fetch: int = UNKNOWN

    def fetched(self, offset: int, leader_end_offset: int, now: float) -> None:
        """Caught up now, or as of the previous fetch if the follower has reached the leader's end at that time."""
        if offset >= leader_end_offset:
            self.caught_up_at = max(self.caught_up_at, now)
        elif self._leader_end_at_fetch != UNKNOWN and offset >= self._leader_end_at_fetch:
            self.caught_up_at = max(self.caught_up_at, self._fetched_at)
        self.end_offset = offset
        self._fetched_at = now
        self._leader_end_at_fetch = leader_end_offset

    def is_caught_up(self, leader_end_offset: int, now: float, max_lag_seconds: float) -> bool:
        return self.end_offset >= leader_end_offset or now - self.caught_up_at <= max_lag_seconds


class PendingChange(msgspec.Struct, frozen=True):
    """A proposed in-sync set that the controller has not decided yet; valid only for this `partition_epoch`.

    `broker_epochs` are the members' epochs at the time of the proposal: a broker that registered again since may have
    lost records.
    """

    isr: tuple[int, ...]
    partition_epoch: int
    broker_epochs: tuple[int, ...]


class LeaderState:
    """`me` leads in `leader_epoch`, whose first offset is `epoch_start_offset`."""

    __slots__ = (
        "_followers",
        "damaged_from",
        "epoch_start_offset",
        "high_watermark",
        "is_making_way",
        "is_move_ready",
        "isr",
        "leader_epoch",
        "me",
        "min_isr",
        "partition_epoch",
        "pending",
        "removing",
        "replicas",
    )

    def __init__(
        self,
        me: int,
        leader_epoch: int,
        epoch_start_offset: int,
        high_watermark: int,
        now: float,
        *,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        partition_epoch: int,
        min_isr: int = 1,
        removing: tuple[int, ...] = (),
        is_move_ready: bool = False,
    ) -> None:
        """A reassignment takes the replicas in `removing` away; `is_move_ready`: the others no longer need them."""
        self.me = me
        self.removing, self.is_move_ready = removing, is_move_ready
        self.leader_epoch = leader_epoch
        self.epoch_start_offset = epoch_start_offset
        self.high_watermark = high_watermark
        self.isr = isr
        self.partition_epoch = partition_epoch
        self.min_isr = min_isr
        self.pending: PendingChange | None = None
        self.damaged_from: int | None = None
        """Records from here on are uncommitted and unreadable on the leader, so no follower can pass this offset."""
        self.is_making_way = False
        """The controller was asked to elect another leader and has not answered yet."""
        self._followers: dict[int, FollowerProgress] = {}
        self._set_replicas(replicas, now)

    def _set_replicas(self, replicas: tuple[int, ...], now: float) -> None:
        self.replicas = replicas
        known = self._followers
        self._followers = {
            # Members of the in-sync set get a full lag time for their first fetch.
            each: known.get(each) or FollowerProgress(caught_up_at=now if each in self.isr else float("-inf"))
            for each in replicas
            if each != self.me
        }

    # What comes in

    def metadata_changed(
        self,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        partition_epoch: int,
        now: float,
        *,
        removing: tuple[int, ...] = (),
        is_move_ready: bool = False,
    ) -> None:
        """Take new metadata of the same leader epoch; it settles any change that was proposed on an older state."""
        if partition_epoch < self.partition_epoch:
            return
        if partition_epoch > self.partition_epoch:
            self.pending = None
        self.isr, self.partition_epoch = isr, partition_epoch
        self.removing, self.is_move_ready = removing, is_move_ready
        if replicas != self.replicas:
            self._set_replicas(replicas, now)

    def follower_fetched(
        self,
        broker_id: int,
        offset: int,
        leader_end_offset: int,
        now: float,
        *,
        log_start_offset: int = UNKNOWN,
        broker_epoch: int = UNKNOWN,
        is_damaged: bool = False,
    ) -> bool:
        """False when that broker keeps no replica of this partition."""
        follower = self._followers.get(broker_id)
        if follower is None:
            return False
        follower.fetched(offset, self._reachable(leader_end_offset), now)
        follower.log_start_offset = log_start_offset
        follower.broker_epoch = broker_epoch
        follower.is_damaged = is_damaged
        return True

    def advance(self, own_end_offset: int) -> bool:
        """Raise the high watermark to the lowest end of all that may be in sync; whether it moved.

        `own_end_offset` is the end of the leader's own log; in a durable topic, of the part that is on its disk.
        """
        if self.is_under_minimum:
            return False
        lowest = self._reachable(own_end_offset)
        for broker_id in self.maximal_isr:
            if broker_id != self.me:
                follower = self._followers.get(broker_id)
                lowest = min(lowest, follower.end_offset if follower is not None else UNKNOWN)
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True

    def _reachable(self, end_offset: int) -> int:
        return end_offset if self.damaged_from is None else min(end_offset, self.damaged_from)

    # Who is in sync

    @property
    def maximal_isr(self) -> Iterable[int]:
        if self.pending is None:
            return self.isr
        return {*self.isr, *self.pending.isr}

    @property
    def is_being_handed_over(self) -> bool:
        """Whether a pending change may elect another leader, which can commit without this node."""
        return self.is_making_way or (self.me in self.removing and self.pending is not None)

    @property
    def may_end_move(self) -> bool:
        """Whether all in-sync replicas that a reassignment removes have fetched from this leader in this epoch.

        A former leader that has not fetched may still believe that it leads, and would answer reads with old data once
        it is removed.
        """
        return all(
            each == self.me or self._followers[each].end_offset != UNKNOWN
            for each in self.removing
            if each in self.isr
        )

    @property
    def is_under_minimum(self) -> bool:
        """Whether the in-sync set is below the minimum; pending members do not count."""
        return len(self.isr) < min(self.min_isr, len(self.replicas))

    def lagging(self, leader_end_offset: int, now: float, max_lag_seconds: float) -> tuple[int, ...]:
        """Members of the in-sync set that have been behind for too long."""
        return tuple(
            each
            for each in self.isr
            if each != self.me and self.is_lagging(each, leader_end_offset, now, max_lag_seconds)
        )

    def is_lagging(self, broker_id: int, leader_end_offset: int, now: float, max_lag_seconds: float) -> bool:
        follower = self._followers.get(broker_id)
        end = self._reachable(leader_end_offset)
        return follower is None or not follower.is_caught_up(end, now, max_lag_seconds)

    def may_join(self, broker_id: int, log_start_offset: int = UNKNOWN) -> bool:
        """Whether a follower outside the in-sync set has all the records that a member must have, and has deleted
        everything below `log_start_offset`.
        """
        follower = self._followers.get(broker_id)
        return (
            follower is not None
            and broker_id not in self.isr
            and not follower.is_damaged
            and follower.end_offset >= max(self.high_watermark, self.epoch_start_offset)
            and follower.log_start_offset >= log_start_offset
        )

    def follower(self, broker_id: int) -> FollowerProgress | None:
        return self._followers.get(broker_id)

    def lowest_log_start(self, own_start: int, brokers: Container[int]) -> int:
        """The low watermark: below it neither the leader nor any of `brokers` keeps records."""
        starts = [each.log_start_offset for broker, each in self._followers.items() if broker in brokers]
        return min([own_start, *starts])

    def propose(
        self, own_epoch: int = UNKNOWN, *, joining: Iterable[int] = (), leaving: Iterable[int] = ()
    ) -> PendingChange:
        """Propose a change; the caller sends it to the controller, and proposes no other until it is decided."""
        invariant(self.pending is None, "another change of the in-sync set is under way")
        gone = set(leaving)
        isr = (*(each for each in self.isr if each not in gone), *joining)
        epochs = tuple(own_epoch if each == self.me else self._epoch_of(each) for each in isr)
        self.pending = PendingChange(isr, self.partition_epoch, epochs)
        return self.pending

    def clear_pending(self, change: PendingChange) -> None:
        """The change was made, or never will be."""
        if self.pending is change:
            self.pending = None

    def _epoch_of(self, broker_id: int) -> int:
        follower = self._followers.get(broker_id)
        return follower.broker_epoch if follower is not None else UNKNOWN


class EpochEnd(NamedTuple):
    """The largest epoch at or below the one asked for, and where it ended; -1 and -1 where there is none."""

    epoch: int
    end_offset: int


def find_divergence(
    epochs: LeaderEpochs, log_end_offset: int, fetch_offset: int, last_fetched_epoch: int
) -> EpochEnd | None:
    """A leader's answer to a reader whose last batch before `fetch_offset` was of that epoch; None when they agree."""
    if last_fetched_epoch == UNDEFINED_EPOCH:
        return None
    found = EpochEnd(*epochs.end_offset(last_fetched_epoch, log_end_offset))
    if found.epoch < last_fetched_epoch or found.end_offset < fetch_offset:
        return found
    return None


def truncation_offset(epochs: LeaderEpochs, log_end_offset: int, diverging: EpochEnd) -> int:
    """The offset at which a follower cuts its log; it then asks again with its new last epoch.

    Records that both logs hold are never cut.
    """
    own = EpochEnd(*epochs.end_offset(diverging.epoch, log_end_offset))
    if own.epoch == UNDEFINED_EPOCH:
        # All of the follower's epochs are older: none of its batches is behind the leader's end of that epoch.
        return min(diverging.end_offset, log_end_offset)
    if own.epoch < diverging.epoch:
        # The leader's epoch is unknown here: cut to the last epoch that may be common, and ask about that one next.
        return min(own.end_offset, log_end_offset)
    return min(diverging.end_offset, own.end_offset, log_end_offset)
