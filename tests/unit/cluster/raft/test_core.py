"""The order of effects, and the bounds; what members do together is told in tests/scenario/raft."""

from uuid import UUID

import pytest

from millstream.cluster.raft import messages as m
from millstream.cluster.raft.core import Raft
from millstream.cluster.raft.entries import Entry, EntryKind, HardState, Restored, first_snapshot
from millstream.cluster.raft.errors import NotLeader, TooMuchUncommitted
from millstream.cluster.raft.membership import Change, ChangeKind, MemberKey, Membership
from millstream.cluster.raft.messages import Ready
from millstream.cluster.raft.state import RaftSettings, Role
from millstream.runtime.invariant import InvariantViolation

ONE, TWO, THREE = (MemberKey(number, UUID(int=number)) for number in (1, 2, 3))


def member(*voters: MemberKey, settings: RaftSettings | None = None) -> Raft:
    restored = Restored(HardState(1), first_snapshot(Membership(voters or (ONE, TWO, THREE))))
    return Raft(ONE, settings or RaftSettings(), lambda limit: 0, restored)


def take(raft: Raft) -> Ready:
    ready = raft.ready()
    assert ready is not None
    return ready


def settle(raft: Raft) -> list[m.Message]:
    """Do all that is asked for, at once; everything that left."""
    sent: list[m.Message] = []
    while (ready := raft.ready()) is not None:
        sent += ready.messages
        if ready.must_persist:
            raft.advance()
            sent += ready.messages_after_persist
    return sent


def leader(*voters: MemberKey, settings: RaftSettings | None = None) -> Raft:
    raft = member(*voters, settings=settings)
    raft.campaign()
    settle(raft)
    raft.step(m.PreVoteReply(TWO, ONE, 2, True))
    settle(raft)
    raft.step(m.VoteReply(TWO, ONE, 2, True))
    settle(raft)
    raft.step(m.AppendReply(TWO, ONE, 2, 2))
    settle(raft)
    assert raft.state.role is Role.LEADER
    assert raft.state.log.commit_index == 2
    return raft


def test_a_vote_request_waits_for_term_and_vote_on_disk() -> None:
    raft = member()
    raft.campaign()
    settle(raft)
    raft.step(m.PreVoteReply(TWO, ONE, 2, True))
    ready = take(raft)
    assert ready.hard_state == HardState(2, ONE)
    assert not ready.messages
    assert [type(message) for message in ready.messages_after_persist] == [m.VoteRequest, m.VoteRequest]


def test_a_vote_waits_for_the_disk() -> None:
    raft = member()
    raft.step(m.VoteRequest(TWO, ONE, 5, 9, 4))
    ready = take(raft)
    assert (ready.hard_state, ready.messages) == (HardState(5, TWO), ())
    assert ready.messages_after_persist == (m.VoteReply(ONE, TWO, 5, True),)
    assert raft.ready() is None


def test_entries_are_acknowledged_after_they_are_on_disk() -> None:
    raft = member()
    raft.step(m.AppendRequest(TWO, ONE, 1, 1, 1, (Entry(2, 1, EntryKind.NOOP),), 1))
    ready = take(raft)
    assert [entry.index for entry in ready.entries] == [2]
    assert ready.messages == ()
    assert ready.messages_after_persist == (m.AppendReply(ONE, TWO, 1, 2),)


def test_what_promises_nothing_new_leaves_while_the_disk_is_busy() -> None:
    raft = leader()
    raft.propose(b"x")
    ready = take(raft)
    assert ready.must_persist
    assert {type(message) for message in ready.messages} == {m.AppendRequest}
    for _ in range(raft.state.settings.heartbeat_ticks):
        raft.tick()
    assert {type(message) for message in take(raft).messages} == {m.Heartbeat}
    raft.propose(b"y")
    later = take(raft)
    assert not later.must_persist, "one write at a time"
    assert {type(message) for message in later.messages} == {m.AppendRequest}


def test_what_came_during_a_write_is_in_the_next_one() -> None:
    raft = member()
    raft.step(m.AppendRequest(TWO, ONE, 1, 1, 1, (Entry(2, 1, EntryKind.NOOP),), 1))
    take(raft)
    raft.step(m.AppendRequest(TWO, ONE, 1, 2, 1, (Entry(3, 1, EntryKind.NOOP),), 1))
    assert raft.ready() is None
    raft.advance()
    ready = take(raft)
    assert [entry.index for entry in ready.entries] == [3]
    assert ready.messages_after_persist == (m.AppendReply(ONE, TWO, 1, 3),)


def test_nothing_reflects_a_new_term_before_it_is_on_disk() -> None:
    raft = member()
    raft.step(m.Heartbeat(TWO, ONE, 7, 1, 0))
    ready = take(raft)
    assert (ready.hard_state, ready.messages) == (HardState(7), ())
    assert ready.messages_after_persist == (m.HeartbeatReply(ONE, TWO, 7, 0, 0),)


def test_an_only_voter_commits_as_soon_as_its_disk_is_done() -> None:
    raft = member(ONE)
    raft.campaign()
    assert raft.state.role is Role.CANDIDATE, "its own vote counts when it is on disk"
    settle(raft)
    entry = raft.propose(b"x")
    ready = take(raft)
    assert ready.committed == ()
    raft.advance()
    assert take(raft).committed == (entry,)


def test_advance_without_a_write_is_a_mistake() -> None:
    with pytest.raises(InvariantViolation):
        member().advance()


def test_uncommitted_bytes_are_bounded_and_freed_by_commits() -> None:
    raft = leader(settings=RaftSettings(max_uncommitted_bytes=200))
    last = raft.propose(b"x" * 500)
    with pytest.raises(TooMuchUncommitted):
        raft.propose(b"y")
    settle(raft)
    raft.step(m.AppendReply(TWO, ONE, 2, last.index))
    raft.propose(b"y")
    assert raft.state.leading.uncommitted_bytes < 200


def test_bytes_in_flight_to_a_follower_are_bounded() -> None:
    raft = leader(settings=RaftSettings(max_inflight_bytes=300, max_append_bytes=100))
    settle(raft)
    for _ in range(50):
        raft.propose(b"x" * 40)
    appends = [
        message for message in settle(raft) if isinstance(message, m.AppendRequest) and message.to == TWO
    ]
    sent = sum(entry.size_bytes for append in appends for entry in append.entries)
    assert 300 <= sent < 300 + 72
    last = appends[-1].entries[-1].index
    raft.step(m.AppendReply(TWO, ONE, 2, last))
    more = [message for message in settle(raft) if isinstance(message, m.AppendRequest) and message.to == TWO]
    assert more[0].entries[0].index == last + 1


def test_a_follower_that_does_not_answer_is_probed_once_per_heartbeat() -> None:
    raft = leader()
    for _ in range(20):
        raft.propose(b"x")
    assert not [message for message in settle(raft) if message.to == THREE], "the first probe is not answered"


def test_a_message_for_an_earlier_directory_of_this_node_is_dropped() -> None:
    raft = member()
    raft.step(m.VoteRequest(TWO, MemberKey(1, UUID(int=99)), 9, 9, 9))
    assert raft.state.term == 1
    assert raft.ready() is None


def test_only_a_leader_takes_proposals_and_says_who_that_is() -> None:
    raft = member()
    with pytest.raises(NotLeader, match="no leader"):
        raft.propose(b"x")
    raft.step(m.Heartbeat(TWO, ONE, 3, 1, 0))
    with pytest.raises(NotLeader, match="ask node 2"):
        raft.propose(b"x")
    with pytest.raises(NotLeader):
        member().read_index(UUID(int=1))


def test_a_follower_whose_leader_is_gone_stands_for_election_without_waiting_for_its_silence() -> None:
    raft = member()
    raft.step(m.Heartbeat(TWO, ONE, 2, 1, 0))
    settle(raft)
    raft.report_gone(THREE)
    assert raft.state.leader == TWO, "another one than the leader"
    raft.report_gone(TWO)
    assert raft.state.leader is None
    raft.tick()
    assert settle(raft) == [m.PreVoteRequest(ONE, voter, 3, 1, 1) for voter in (TWO, THREE)]


def test_a_leader_does_not_care_who_else_is_gone() -> None:
    raft = leader()
    raft.report_gone(TWO)
    assert raft.state.role is Role.LEADER


def test_two_leaders_of_one_term_stop_the_node() -> None:
    with pytest.raises(InvariantViolation, match="two leaders"):
        leader().step(m.Heartbeat(TWO, ONE, 2, 1, 0))


def test_reads_that_come_while_one_is_asked_share_the_next_round() -> None:
    raft = leader()
    for number in range(1, 6):
        raft.read_index(UUID(int=number))
    beats = [message for message in settle(raft) if isinstance(message, m.Heartbeat)]
    assert {beat.read_round for beat in beats} == {1}
    raft.step(m.HeartbeatReply(TWO, ONE, 2, 1))
    ready = take(raft)
    assert [read.token.int for read in ready.read_states] == [1]
    assert {message.read_round for message in ready.messages if isinstance(message, m.Heartbeat)} == {2}
    raft.step(m.HeartbeatReply(THREE, ONE, 2, 2))
    assert [read.token.int for read in take(raft).read_states] == [2, 3, 4, 5]


def test_a_leader_whose_disk_takes_nothing_can_resign() -> None:
    raft = leader()
    raft.read_index(UUID(int=1))
    raft.resign()
    assert raft.state.role is Role.FOLLOWER
    assert take(raft).aborted_reads == (UUID(int=1),)


def test_what_the_other_member_saw_is_not_taken_back_with_its_removal() -> None:
    """A full disk refuses both in one write. The other may have the entry: nothing else may come in its place."""
    raft = leader(ONE, TWO)
    entry = raft.propose(b"x")
    raft.propose_change(Change(ChangeKind.REMOVE, TWO))
    assert [each.entries for each in take(raft).messages if isinstance(each, m.AppendRequest)] == [(entry,)]
    assert not raft.take_back_unwritten()
    assert raft.state.log.last_index == entry.index + 1
    raft.advance()
    settle(raft)
    raft.propose(b"y")
    take(raft)
    assert raft.take_back_unwritten(), "the other is out, and saw nothing of this"


def test_a_follower_that_lost_what_it_acknowledged_is_sent_it_again() -> None:
    """It was started with an older copy of its disk."""
    raft = leader()
    entry = raft.propose(b"x")
    settle(raft)
    raft.step(m.AppendReply(TWO, ONE, 2, entry.index))
    settle(raft)
    raft.step(m.HeartbeatReply(TWO, ONE, 2, 0, 0))
    probes = [message for message in settle(raft) if isinstance(message, m.AppendRequest)]
    assert [(probe.to, probe.prev_index) for probe in probes] == [(TWO, entry.index)]
    raft.step(m.AppendRejected(TWO, ONE, 2, entry.index, 1, 1))
    (again,) = [message for message in settle(raft) if isinstance(message, m.AppendRequest)]
    assert again.prev_index == 1
    assert [each.index for each in again.entries] == [2, entry.index]
    assert raft.state.log.commit_index == entry.index


def test_a_follower_commits_only_what_it_has_seen_to_be_the_leaders() -> None:
    """The leader counts on what was acknowledged before the disk was exchanged for an older one."""
    raft = member()
    raft.step(m.AppendRequest(TWO, ONE, 2, 1, 1, (Entry(2, 2, EntryKind.NOOP, b""),), 1))
    settle(raft)
    restarted = Raft(
        ONE,
        RaftSettings(),
        lambda limit: 0,
        Restored(HardState(2), raft.state.log.snapshot, raft.state.log.between(2, 2)),
    )
    restarted.step(m.Heartbeat(THREE, ONE, 3, 2, 0))
    (alive,) = settle(restarted)
    assert isinstance(alive, m.HeartbeatReply)
    assert alive.agreed_index == 0
    assert restarted.state.log.commit_index == 1
    restarted.step(m.AppendRequest(THREE, ONE, 3, 1, 1, (Entry(2, 3, EntryKind.NOOP, b""),), 2))
    settle(restarted)
    assert restarted.state.log.commit_index == 2
    restarted.step(m.Heartbeat(THREE, ONE, 3, 2, 0))
    (alive,) = settle(restarted)
    assert isinstance(alive, m.HeartbeatReply)
    assert alive.agreed_index == 2
