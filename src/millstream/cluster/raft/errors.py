"""Why the quorum does not take a request, or cannot say what became of it."""

from millstream.cluster.raft.membership import MemberKey


class RaftError(Exception):
    """Base of everything a caller of the quorum may have to handle."""


class NotLeader(RaftError):
    """Nothing was done; `leader` is whom to ask instead, if anyone is known."""

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
    """Nothing was done; leadership is on its way to another node."""


class ChangeRefused(RaftError):
    """The membership stays as it is, for the reason in the message."""


class ChangeNotYet(ChangeRefused):
    """The same change may be made a moment later."""


class ProposalLost(RaftError):
    """Another leader's entry took the place of the proposal: it will never be committed."""


class OutcomeUnknown(RaftError):
    """The proposal may or may not be committed: its place in the log went by unseen, or the node stopped."""
