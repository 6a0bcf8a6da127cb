"""Deliberate mistakes, made from outside: the production code has no switch for them."""

from collections.abc import Callable
from typing import Any

import pytest

from millstream.cluster.raft import election, following, messages, reading, replication, state
from millstream.cluster.raft.entries import HardState
from millstream.cluster.raft.log import RaftLog
from millstream.cluster.raft.messages import AppendReply, AppendRequest, VoteRequest
from millstream.cluster.raft.wal import Wal

Patch = pytest.MonkeyPatch


def vote_not_persisted(patch: Patch) -> None:
    write = Wal.write
    patch.setattr(Wal, "write", lambda wal, hard, entries: write(wal, HardState(hard.term), entries))


def term_not_persisted(patch: Patch) -> None:
    write = Wal.write
    patch.setattr(Wal, "write", lambda wal, hard, entries: write(wal, HardState(), entries))


def old_term_committed_by_counting(patch: Patch) -> None:
    patch.setattr(replication, "may_commit", lambda raft, index: True)


def truncation_below_commit(patch: Patch) -> None:
    """Every request is taken for a conflict, as if requests came in order and once."""

    def truncate(log: RaftLog, index: int) -> None:
        del log._entries[index - log.first_index :]
        while log._memberships[-1][0] >= index:
            log._memberships.pop()
        log.stable_index = min(log.stable_index, index - 1)
        log._writing_to = min(log._writing_to, index - 1)
        log.commit_index = min(log.commit_index, log.last_index)

    def on_append(raft: state.RaftState, request: AppendRequest) -> None:
        log = raft.log
        if log.term_at(request.prev_index) != request.prev_term:
            return original(raft, request)
        truncate(log, request.prev_index + 1)
        log.append(request.entries)
        log.commit_to(min(request.commit_index, log.last_index))
        raft.send(AppendReply(raft.key, request.sender, raft.term, log.last_index))
        return None

    original = following._on_append
    patch.setattr(following, "_on_append", on_append)


def self_counted_before_fsync(patch: Patch) -> None:
    original = replication.match_index
    patch.setattr(
        replication,
        "match_index",
        lambda raft, voter: raft.log.last_index if voter == raft.key else original(raft, voter),
    )


def appends_acknowledged_before_fsync(patch: Patch) -> None:
    patch.setattr(state, "PROMISES", tuple(k for k in messages.PROMISES if k is not AppendReply))


def votes_for_any_log(patch: Patch) -> None:
    patch.setattr(RaftLog, "is_up_to_date", lambda log, index, term: True)


def reads_without_asking(patch: Patch) -> None:
    patch.setattr(reading, "majority_answered", lambda raft: True)


def two_votes_a_term(patch: Patch) -> None:
    def on_vote_request(raft: state.RaftState, request: VoteRequest) -> None:
        if raft.leader is None:
            raft.vote = None
        original(raft, request)

    original: Any = election.on_vote_request
    patch.setattr(election, "on_vote_request", on_vote_request)


MUTATIONS: dict[str, Callable[[Patch], None]] = {
    mutation.__name__: mutation
    for mutation in (
        vote_not_persisted,
        term_not_persisted,
        old_term_committed_by_counting,
        truncation_below_commit,
        self_counted_before_fsync,
        appends_acknowledged_before_fsync,
        votes_for_any_log,
        reads_without_asking,
        two_votes_a_term,
    )
}
