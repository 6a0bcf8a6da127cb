"""Elections: timeouts, pre-votes, votes, and how a leader detects that it has lost its majority.

A member votes once per term, for a log that is at least as up to date as its own. Before it raises its term, a
candidate asks whether it would win (pre-vote). Voters that hear from a live leader refuse both, unless that leader
asked for the election. A member's own vote counts once it is on its disk.
"""

from millstream.cluster.raft.membership import MemberKey, Tally, majority, tally
from millstream.cluster.raft.messages import PreVoteReply, PreVoteRequest, TimeoutNow, VoteReply, VoteRequest
from millstream.cluster.raft.replication import begin_term
from millstream.cluster.raft.state import RaftState, Role


def on_election_timeout(raft: RaftState) -> None:
    if raft.is_voter:
        ask_for_pre_votes(raft)
    else:
        raft.become_follower(raft.term, None)


def on_gone(raft: RaftState, member: MemberKey) -> None:
    if raft.role is Role.FOLLOWER and raft.leader == member:
        raft.become_follower(raft.term, None)
        raft.hurry()


def ask_for_pre_votes(raft: RaftState) -> None:
    raft.become_pre_candidate()
    for voter in _others(raft):
        raft.send(PreVoteRequest(raft.key, voter, raft.term + 1, raft.log.last_index, raft.log.last_term))
    count_vote(raft, raft.key, granted=True)


def campaign(raft: RaftState, *, transfer: bool = False) -> None:
    raft.become_candidate()
    for voter in _others(raft):
        raft.send(VoteRequest(raft.key, voter, raft.term, raft.log.last_index, raft.log.last_term, transfer))


def on_own_vote_durable(raft: RaftState) -> None:
    if raft.role is Role.CANDIDATE and raft.key not in raft.votes:
        count_vote(raft, raft.key, granted=True)


def on_pre_vote_request(raft: RaftState, request: PreVoteRequest) -> None:
    granted = request.term > raft.term and raft.log.is_up_to_date(request.last_index, request.last_term)
    term = request.term if granted else raft.term
    raft.send(PreVoteReply(raft.key, request.sender, term, granted))


def on_vote_request(raft: RaftState, request: VoteRequest) -> None:
    is_free = raft.vote == request.sender or (raft.vote is None and raft.leader is None)
    granted = is_free and raft.log.is_up_to_date(request.last_index, request.last_term)
    if granted:
        raft.vote = request.sender
        raft.elapsed = 0
    raft.send(VoteReply(raft.key, request.sender, raft.term, granted))


def on_pre_vote_reply(raft: RaftState, reply: PreVoteReply) -> None:
    if raft.role is not Role.PRE_CANDIDATE or (reply.granted and reply.term != raft.term + 1):
        return
    count_vote(raft, reply.sender, granted=reply.granted)


def on_vote_reply(raft: RaftState, reply: VoteReply) -> None:
    if raft.role is Role.CANDIDATE:
        count_vote(raft, reply.sender, granted=reply.granted)


def on_timeout_now(raft: RaftState, request: TimeoutNow) -> None:
    if raft.is_voter and request.term == raft.term and raft.role is Role.FOLLOWER:
        campaign(raft, transfer=True)


def count_vote(raft: RaftState, voter: MemberKey, *, granted: bool) -> None:
    raft.votes.setdefault(voter, granted)
    match tally(raft.log.membership.voters, raft.votes):
        case Tally.WON if raft.role is Role.PRE_CANDIDATE:
            campaign(raft)
        case Tally.WON:
            begin_term(raft)
        case Tally.LOST:
            raft.become_follower(raft.term, None)
        case Tally.PENDING:
            pass


def check_quorum(raft: RaftState) -> bool:
    """Whether this leader may continue: after a majority was silent for an election timeout, another may lead."""
    progress = raft.leading.progress
    voters = raft.log.membership.voters
    heard = sum(voter == raft.key or progress[voter].is_active for voter in voters)
    if heard < majority(len(voters)):
        raft.become_follower(raft.term, None)
        return False
    for each in progress.values():
        each.is_active = False
    return True


def _others(raft: RaftState) -> list[MemberKey]:
    return [voter for voter in raft.log.membership.voters if voter != raft.key]
