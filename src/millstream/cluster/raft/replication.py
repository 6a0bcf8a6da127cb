"""A leader's side of the log: appending, sending, counting.

A leader sends entries while its own disk still writes them, but counts itself only for written ones. It counts
replicas only for entries of its own term; earlier entries are committed with them.
"""

from millstream.cluster.raft.entries import Entry, EntryKind
from millstream.cluster.raft.membership import MemberKey, reached_by_majority
from millstream.cluster.raft.messages import (
    AppendRejected,
    AppendReply,
    AppendRequest,
    HeartbeatReply,
    InstallSnapshot,
    TimeoutNow,
)
from millstream.cluster.raft.progress import Pace, Progress
from millstream.cluster.raft.reading import finish_round, start_round
from millstream.cluster.raft.state import Leadership, RaftState
from millstream.runtime.sometimes import sometimes


def begin_term(raft: RaftState) -> None:
    raft.become_leader(Leadership(raft.log.last_index + 1))
    follow_membership(raft)
    append(raft, EntryKind.NOOP, b"")


def append(raft: RaftState, kind: EntryKind, data: bytes) -> Entry:
    entry = Entry(raft.log.last_index + 1, raft.term, kind, data)
    raft.log.append([entry])
    raft.leading.uncommitted_bytes += entry.size_bytes
    if kind is EntryKind.MEMBERSHIP:
        follow_membership(raft)
    broadcast(raft)
    return entry


def follow_membership(raft: RaftState) -> None:
    """Track exactly the members of the newest membership in the log."""
    progress, settings = raft.leading.progress, raft.settings
    others = [member for member in raft.log.membership.members if member != raft.key]
    for gone in progress.keys() - set(others):
        del progress[gone]
    for member in others:
        if member not in progress:
            progress[member] = Progress(
                raft.log.last_index + 1, settings.max_inflight_messages, settings.max_inflight_bytes
            )


def broadcast(raft: RaftState) -> None:
    for member in raft.leading.progress:
        send_append(raft, member)


def send_append(raft: RaftState, to: MemberKey, *, even_empty: bool = True) -> bool:
    """Send the next entries, within the follower's limits; whether anything was sent."""
    log, progress = raft.log, raft.leading.progress[to]
    if progress.is_paused:
        return False
    prev_index = progress.next_index - 1
    prev_term = log.term_at(prev_index)
    if prev_term is None:
        return _send_snapshot(raft, to, progress)
    entries: tuple[Entry, ...] = ()
    if not progress.inflight.is_full:
        max_bytes = min(raft.settings.max_append_bytes, progress.inflight.room_bytes)
        entries = log.batch(progress.next_index, max_bytes)
    if not entries and not even_empty:
        return False
    raft.send(AppendRequest(raft.key, to, raft.term, prev_index, prev_term, entries, log.commit_index))
    progress.sent(len(entries), prev_index + len(entries), sum(entry.size_bytes for entry in entries))
    return True


def _send_snapshot(raft: RaftState, to: MemberKey, progress: Progress) -> bool:
    # A snapshot is large: send it only to an active follower.
    if not progress.is_active:
        return False
    raft.send(InstallSnapshot(raft.key, to, raft.term, raft.log.snapshot))
    sometimes("a snapshot of the quorum was sent to one that lags")
    progress.wait_for_snapshot(raft.log.snapshot.index)
    return True


def on_append_reply(raft: RaftState, reply: AppendReply) -> None:
    progress = raft.leading.progress.get(reply.sender)
    if progress is None:
        return
    progress.is_active = True
    was_paused = progress.is_paused
    got_further = progress.acknowledge(reply.match_index)
    agreed = progress.pace is Pace.PROBE and progress.match_index == reply.match_index
    if not got_further and not agreed:
        return
    _pick_up_pace(raft, progress)
    if commit_what_majority_has(raft):
        broadcast(raft)
    elif raft.leadership is None:
        # The committed entry was this leader's own removal.
        return
    elif was_paused:
        send_append(raft, reply.sender)
    while send_append(raft, reply.sender, even_empty=False):
        pass
    hand_over_if_caught_up(raft, reply.sender)


def _pick_up_pace(raft: RaftState, progress: Progress) -> None:
    if progress.pace is Pace.REPLICATE:
        progress.inflight.free_to(progress.match_index)
        progress.is_paused = progress.inflight.is_full
    elif progress.pace is Pace.PROBE or progress.match_index + 1 >= raft.log.first_index:
        progress.replicate()


def on_append_rejected(raft: RaftState, reply: AppendRejected) -> None:
    progress = raft.leading.progress.get(reply.sender)
    if progress is None:
        return
    progress.is_active = True
    hint = reply.hint_index
    if reply.hint_term > 0:
        hint, _ = raft.log.last_not_above(hint, reply.hint_term)
    if progress.step_back(reply.rejected_index, hint):
        send_append(raft, reply.sender)


def on_heartbeat_reply(raft: RaftState, reply: HeartbeatReply) -> None:
    progress = raft.leading.progress.get(reply.sender)
    if progress is None:
        return
    progress.is_active = True
    if progress.pace is Pace.REPLICATE and 0 <= reply.agreed_index < progress.match_index:
        # The follower restarted: check whether it still has everything that it acknowledged.
        progress.probe()
    if progress.pace is not Pace.SNAPSHOT:
        progress.is_paused = False
        if progress.match_index < raft.log.last_index or progress.pace is Pace.PROBE:
            send_append(raft, reply.sender)
    if reply.read_round > progress.read_round:
        progress.read_round = reply.read_round
        finish_round(raft)


def commit_what_majority_has(raft: RaftState) -> bool:
    """Advance the commit index; True if it moved and this member still leads, so that followers must be notified."""
    log = raft.log
    index = reached_by_majority([match_index(raft, voter) for voter in log.membership.voters])
    before = log.commit_index
    if index <= before or not may_commit(raft, index):
        return False
    log.commit_to(index)
    leading = raft.leading
    for entry in log.between(max(before + 1, leading.first_index), index):
        leading.uncommitted_bytes -= entry.size_bytes
    start_round(raft)
    if log.membership_index <= index and not raft.is_voter:
        _leave(raft)
        return False
    return True


def may_commit(raft: RaftState, index: int) -> bool:
    return raft.log.term_at(index) == raft.term


def match_index(raft: RaftState, voter: MemberKey) -> int:
    if voter == raft.key:
        return raft.log.stable_index
    return raft.leading.progress[voter].match_index


def _leave(raft: RaftState) -> None:
    """The leader's own removal is committed: transfer leadership to the member with the longest log."""
    broadcast(raft)
    successor = max(raft.log.membership.voters, key=lambda voter: match_index(raft, voter))
    raft.send(TimeoutNow(raft.key, successor, raft.term))
    raft.become_follower(raft.term, None)


def hand_over_if_caught_up(raft: RaftState, to: MemberKey) -> None:
    leading = raft.leading
    if leading.transfer_to == to and leading.progress[to].match_index == raft.log.last_index:
        raft.send(TimeoutNow(raft.key, to, raft.term))


def retry_snapshots(raft: RaftState) -> None:
    """Resend snapshots that were reported neither as delivered nor as failed."""
    for progress in raft.leading.progress.values():
        if progress.pace is Pace.SNAPSHOT:
            progress.snapshot_ticks += 1
            if progress.snapshot_ticks >= raft.settings.snapshot_retry_ticks:
                progress.probe()
