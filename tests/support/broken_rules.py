"""Rules of consensus and replication, each broken in one place. The simulator must notice."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from millstream.broker.coordinators.coordinator_log import PartitionCoordinatorLog
from millstream.broker.partitions.partition import Partition
from millstream.broker.peers import founder, founding, hello, lease, network
from millstream.broker.peers.heartbeats import Heartbeats
from millstream.broker.peers.lease import Lease
from millstream.broker.replicas import following, serving
from millstream.broker.replicas.making_way import MakingWay
from millstream.broker.routing import produce
from millstream.cluster.metadata import election
from millstream.cluster.metadata.image import NO_LEADER
from millstream.cluster.raft import changes, membership
from millstream.cluster.raft.entries import Entry, HardState
from millstream.cluster.raft.wal import Wal
from millstream.cluster.replication import LeaderState
from millstream.protocol.record_batch import read_header
from millstream.storage.segment_recovery import RecoveryReport


def vote_not_persisted(patch: pytest.MonkeyPatch) -> None:
    """A voter that was restarted has forgotten that it voted, for whom and in which term."""
    write = Wal.write

    def forgetful(self: Wal, _hard_state: HardState, entries: tuple[Entry, ...]) -> None:
        write(self, HardState(), entries)

    patch.setattr(Wal, "write", forgetful)


def truncation_below_commit(patch: pytest.MonkeyPatch) -> None:
    """A follower gives up more than what parts its log from the leader's."""
    real = following.truncation_offset

    def too_far(*arguments: Any) -> int:
        return max(0, real(*arguments) - 5)

    patch.setattr(following, "truncation_offset", too_far)


def high_watermark_from_a_stale_in_sync_set(patch: pytest.MonkeyPatch) -> None:
    """A leader goes on to count those that were in sync when it was elected."""
    changed = LeaderState.metadata_changed
    first: dict[LeaderState, tuple[int, ...]] = {}

    def stale(
        self: LeaderState, replicas: Any, isr: Any, partition_epoch: int, now: float, **more: Any
    ) -> None:
        first.setdefault(self, self.isr)
        changed(self, replicas, isr, partition_epoch, now, **more)

    def members(self: LeaderState) -> Iterable[int]:
        return first.get(self, self.isr)

    patch.setattr(LeaderState, "metadata_changed", stale)
    patch.setattr(LeaderState, "maximal_isr", property(members))


def acknowledged_before_fsync(patch: pytest.MonkeyPatch) -> None:
    """What was written counts, whether the disk has it or not."""
    patch.setattr(Partition, "durable_end_offset", property(lambda self: self.log.log_end_offset))


def in_sync_too_early(patch: pytest.MonkeyPatch) -> None:
    """Whoever fetches is in sync, however far behind it is."""

    def anybody(self: LeaderState, broker_id: int, *_: Any) -> bool:
        return self.follower(broker_id) is not None and broker_id not in self.isr

    patch.setattr(LeaderState, "may_join", anybody)


def holes_are_let_in(patch: pytest.MonkeyPatch) -> None:
    """A replica that waits for a repair comes into the in-sync set like any other."""
    may_join = LeaderState.may_join

    def damaged_too(self: LeaderState, broker_id: int, *rest: int) -> bool:
        follower = self.follower(broker_id)
        if follower is None or not follower.is_damaged:
            return may_join(self, broker_id, *rest)
        follower.is_damaged = False
        try:
            return may_join(self, broker_id, *rest)
        finally:
            follower.is_damaged = True

    patch.setattr(LeaderState, "may_join", damaged_too)


def damaged_leaders_stay(patch: pytest.MonkeyPatch) -> None:
    """A leader that cannot read what it has not committed goes on leading, and nobody can follow it."""
    patch.setattr(MakingWay, "_has_successor", lambda *_: False)


def old_epoch_accepted(patch: pytest.MonkeyPatch) -> None:
    """A leader takes what a follower has of an old epoch for its own."""
    patch.setattr(serving, "_diverging", lambda *_: None)
    patch.setattr(Partition, "check_epoch", lambda *_: None)


def committed_by_itself(patch: pytest.MonkeyPatch) -> None:
    """A leader commits without counting its followers."""

    def alone(self: LeaderState, own_end_offset: int) -> bool:
        if own_end_offset <= self.high_watermark:
            return False
        self.high_watermark = own_end_offset
        return True

    patch.setattr(LeaderState, "advance", alone)


def doubt_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A replica whose log had to be cut says that it is whole."""
    patch.setattr(RecoveryReport, "doubt", lambda *_: None)


def minimum_ignored(patch: pytest.MonkeyPatch) -> None:
    """A leader commits with fewer in sync than `min.insync.replicas` asks for."""
    patch.setattr(LeaderState, "is_under_minimum", property(lambda _: False))


def unclean_elections(patch: pytest.MonkeyPatch) -> None:
    """Where nobody may lead, the first that is alive does, whatever the settings say."""
    elect = election._elect

    def anybody(current: int, replicas: tuple[int, ...], *rest: Any) -> int:
        brokers = rest[-3]
        chosen = elect(current, replicas, *rest)
        alive = [each for each in replicas if election.is_usable(brokers, each)]
        return alive[0] if chosen == NO_LEADER and alive else chosen

    patch.setattr(election, "_elect", anybody)


def moved_before_it_is_copied(patch: pytest.MonkeyPatch) -> None:
    """A reassignment counts new replicas as in sync before they have anything."""
    finish = election._finish_reassignment

    def at_once(
        p: Any, in_sync: tuple[int, ...], min_insync: int
    ) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
        if not p.adding:
            return finish(p, in_sync, min_insync)
        replicas = tuple(each for each in p.replicas if each not in p.removing)
        return replicas, replicas, True

    patch.setattr(election, "_finish_reassignment", at_once)


def commits_answered_early(patch: pytest.MonkeyPatch) -> None:
    """A group's coordinator answers when a commit is in its own log."""

    async def append(self: PartitionCoordinatorLog, batch: bytes) -> int:
        view = memoryview(bytearray(batch))
        return self._partition.append(view, read_header(view), self._logs.clock.now_ms()).last_offset

    patch.setattr(PartitionCoordinatorLog, "append", append)


def changes_of_voters_overlap(patch: pytest.MonkeyPatch) -> None:
    """The quorum's leader takes a change of its voters while another one is under way."""
    patch.setattr(changes, "_require_settled", lambda *_: None)


def half_is_a_majority(patch: pytest.MonkeyPatch) -> None:
    """Of three voters two decide, as they should; of four two do as well."""
    patch.setattr(membership, "majority", lambda count: (count + 1) // 2)


def removed_node_is_greeted(patch: pytest.MonkeyPatch) -> None:
    """A node that was removed is let in again, with all that it has on its disk."""
    patch.setattr(network, "answer", lambda me, members, caller, _retired: hello.answer(me, members, caller))


def served_without_a_lease(patch: pytest.MonkeyPatch) -> None:
    """A leader answers for as long as it takes itself for one, however long others have heard nothing of it."""
    patch.setattr(Lease, "is_valid", property(lambda _: True))


def lease_longer_than_the_session(patch: pytest.MonkeyPatch) -> None:
    """Somebody else may lead before a leader's lease has ended."""
    patch.setattr(lease, "LEASE_SHARE", 2.0)


def full_node_serves_on(patch: pytest.MonkeyPatch) -> None:
    """A node says that it cannot write, so that others lead, and goes on with the lease that it has."""
    patch.setattr(Heartbeats, "_make_way", lambda _: None)


def batches_forwarded_twice(patch: pytest.MonkeyPatch) -> None:
    """A proxying node sends a batch again that no leader can know again, when its answer is lost."""
    patch.setattr(produce, "_known_header", lambda records: records and read_header(records))


BROKEN: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    each.__name__: each
    for each in (
        vote_not_persisted,
        truncation_below_commit,
        high_watermark_from_a_stale_in_sync_set,
        acknowledged_before_fsync,
        in_sync_too_early,
        holes_are_let_in,
        damaged_leaders_stay,
        old_epoch_accepted,
        committed_by_itself,
        doubt_forgotten,
        minimum_ignored,
        unclean_elections,
        moved_before_it_is_copied,
        commits_answered_early,
        changes_of_voters_overlap,
        half_is_a_majority,
        removed_node_is_greeted,
        served_without_a_lease,
        lease_longer_than_the_session,
        full_node_serves_on,
        batches_forwarded_twice,
    )
}


# Of founding a cluster. Directed runs find these; random ones seldom lose the disks of all who know.


def caller_is_not_heard(patch: pytest.MonkeyPatch) -> None:
    """A node without a cluster does not listen to which one a caller belongs."""
    patch.setattr(network.PeerNetwork, "_heard_of", lambda *_: None)
    greet = network.PeerNetwork.greet

    def deaf(self: network.PeerNetwork, caller: hello.Hello) -> hello.Welcome:
        return greet(self, caller if self.cluster_id else replace(caller, cluster_id=""))

    patch.setattr(network.PeerNetwork, "greet", deaf)


def majority_founds(patch: pytest.MonkeyPatch) -> None:
    """The lowest of most seeds founds a cluster, without the others."""
    decide = founding.next_step

    def eager(now: founding.Situation) -> Any:
        step = decide(now)
        here = {each.member for each in now.there.values()}
        is_due = isinstance(step, founding.Wait) and len(here) > len(now.seeds) / 2 and min(here) == now.me
        return founding.Propose(tuple(sorted(here))) if is_due else step

    patch.setattr(founder, "next_step", eager)


def promise_is_for_everybody(patch: pytest.MonkeyPatch) -> None:
    """A seed lets one found a cluster, and then another."""
    patch.setattr(founder, "refusal_to_promise", lambda *_: None)
    patch.setattr(founder.Promise, "keep", lambda *_: None)
    decide = founding.next_step
    patch.setattr(founder, "next_step", lambda now: decide(replace(now, promised=None)))


BROKEN_FOUNDING: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    each.__name__: each for each in (caller_is_not_heard, majority_founds, promise_is_for_everybody)
}
