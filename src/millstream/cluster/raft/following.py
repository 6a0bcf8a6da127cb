"""A follower's side of the log: accept the leader's entries, reject those that do not fit."""

from millstream.cluster.raft.entries import Snapshot
from millstream.cluster.raft.messages import (
    AppendRejected,
    AppendReply,
    AppendRequest,
    FromLeader,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
)
from millstream.cluster.raft.state import RaftState, Role
from millstream.runtime.invariant import invariant


def on_message_from_leader(raft: RaftState, message: FromLeader) -> None:
    invariant(raft.role is not Role.LEADER, f"two leaders in term {message.term}")
    if raft.role is not Role.FOLLOWER:
        raft.become_follower(message.term, message.sender)
    raft.leader = message.sender
    raft.elapsed = 0
    match message:
        case AppendRequest():
            _on_append(raft, message)
        case Heartbeat():
            # The leader counts on acknowledged entries, which may be missing after a start with an older disk.
            raft.log.commit_to(min(message.commit_index, raft.agreed_index, raft.log.last_index))
            raft.send(
                HeartbeatReply(raft.key, message.sender, raft.term, message.read_round, raft.agreed_index)
            )
        case InstallSnapshot():
            match_index = raft.agreed_index = _take_snapshot(raft, message.snapshot)
            raft.send(AppendReply(raft.key, message.sender, raft.term, match_index))


def _on_append(raft: RaftState, request: AppendRequest) -> None:
    log = raft.log
    if request.prev_index < log.commit_index:
        # Committed entries are in the leader's log too, so they need no comparison.
        raft.agreed_index = max(raft.agreed_index, log.commit_index)
        raft.send(AppendReply(raft.key, request.sender, raft.term, log.commit_index))
        return
    match_index = log.merge(request.prev_index, request.prev_term, request.entries)
    if match_index is None:
        hint_index, hint_term = log.last_not_above(min(request.prev_index, log.last_index), request.prev_term)
        raft.send(
            AppendRejected(raft.key, request.sender, raft.term, request.prev_index, hint_index, hint_term)
        )
        return
    raft.agreed_index = max(raft.agreed_index, match_index)
    log.commit_to(min(request.commit_index, match_index))
    raft.send(AppendReply(raft.key, request.sender, raft.term, match_index))


def _take_snapshot(raft: RaftState, snapshot: Snapshot) -> int:
    """The index up to which the log then matches the leader's."""
    log = raft.log
    if snapshot.index <= log.commit_index:
        return log.commit_index
    if log.term_at(snapshot.index) == snapshot.term:
        # The entries are here; only their commit was not known.
        log.commit_to(snapshot.index)
        return snapshot.index
    log.restore(snapshot)
    return snapshot.index


def on_stale_leader(raft: RaftState, message: FromLeader) -> None:
    """Answer a leader of an earlier term, so that it steps down."""
    raft.send(HeartbeatReply(raft.key, message.sender, raft.term, 0))
