"""Errors of the quorum: refused requests and unknown outcomes."""

from millstream.cluster.raft.membership import MemberKey


class RaftError(Exception):
    """Base class of all errors that a caller of the quorum may have to handle."""


class NotLeader(RaftError):
    """Nothing was done; `leader` is the member to ask instead, if known."""

    def __init__(self, leader: MemberKey | None) -> None:
        super().__init__(
            f"this node does not lead the quorum; ask node {leader.node_id}"
            if leader is not None
            else "the quorum has no leader at the moment; try again"
        )
        self.leader = leader


class TooMuchUncommitted(RaftError):
    """Nothing was done; the quorum is slower than its callers."""


class TransferInProgress(RaftError):
    """Nothing was done; leadership is being transferred to another node."""


class ChangeRefused(RaftError):
    """The membership was not changed, for the reason in the message."""


class ChangeNotYet(ChangeRefused):
    """The same change may succeed a moment later."""


class ProposalLost(RaftError):
    """Another leader's entry replaced the proposal, which will never be committed."""


class OutcomeUnknown(RaftError):
    """The proposal may or may not be committed: a snapshot skipped its index, or the node stopped."""
