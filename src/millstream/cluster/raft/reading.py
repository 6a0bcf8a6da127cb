"""Linearizable reads: a leader confirms that it still leads before it returns its commit index.

Reads wait until an entry of the leader's own term is committed, because before that the commit index is not certain.
Reads that arrive during a round of heartbeats wait for the next: answers to this one may predate the read.
"""

from uuid import UUID

from millstream.cluster.raft.errors import NotLeader
from millstream.cluster.raft.membership import reached_by_majority
from millstream.cluster.raft.messages import Heartbeat, ReadReply, ReadRequest, ReadState
from millstream.cluster.raft.state import PendingRead, RaftState


def read_index(raft: RaftState, token: UUID) -> None:
    if raft.leadership is not None:
        raft.leadership.reads_waiting.append(PendingRead(token, None))
        start_round(raft)
    elif raft.leader is not None:
        raft.send(ReadRequest(raft.key, raft.leader, raft.term, token))
    else:
        raise NotLeader(None)


def on_read_request(raft: RaftState, request: ReadRequest) -> None:
    if raft.leadership is not None:
        raft.leadership.reads_waiting.append(PendingRead(request.token, request.sender))
        start_round(raft)


def on_read_reply(raft: RaftState, reply: ReadReply) -> None:
    raft.read_states.append(ReadState(reply.token, reply.index))


def start_round(raft: RaftState) -> None:
    leading = raft.leading
    if leading.reads_asking or not leading.reads_waiting or raft.log.commit_index < leading.first_index:
        return
    leading.reads_asking, leading.reads_waiting = leading.reads_waiting, []
    leading.reads_index = raft.log.commit_index
    leading.read_round += 1
    send_heartbeats(raft)
    finish_round(raft)


def finish_round(raft: RaftState) -> None:
    leading = raft.leading
    if not leading.reads_asking or not majority_answered(raft):
        return
    for read in leading.reads_asking:
        if read.requester is None:
            raft.read_states.append(ReadState(read.token, leading.reads_index))
        else:
            raft.send(ReadReply(raft.key, read.requester, raft.term, read.token, leading.reads_index))
    leading.reads_asking = []
    start_round(raft)


def majority_answered(raft: RaftState) -> bool:
    leading = raft.leading
    rounds = [
        leading.read_round if voter == raft.key else leading.progress[voter].read_round
        for voter in raft.log.membership.voters
    ]
    return reached_by_majority(rounds) >= leading.read_round


def send_heartbeats(raft: RaftState) -> None:
    leading = raft.leading
    leading.heartbeat_elapsed = 0
    for member, progress in leading.progress.items():
        # A follower may hold other entries beyond the match, so it must not commit there.
        commit = min(progress.match_index, raft.log.commit_index)
        raft.send(Heartbeat(raft.key, member, raft.term, commit, leading.read_round))
