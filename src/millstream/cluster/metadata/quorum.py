"""Changes of the metadata quorum, one voter at a time through its own log; and the leader's view of the quorum: its
members, and how far each copy of the log reaches."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from uuid import UUID

import msgspec

from millstream.cluster.metadata.commands import Decision, NewId
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.raft.driver import Driver
from millstream.cluster.raft.errors import ChangeNotYet, ChangeRefused
from millstream.cluster.raft.membership import Change, ChangeKind, MemberKey, Membership, majority
from millstream.cluster.raft.status import Status
from millstream.protocol.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class QuorumChange(ABC):
    """Carried out by the quorum's leader; without `directory` the node is identified by its id alone."""

    node_id: int
    directory: UUID | None = None

    def decide(self, _image: MetadataImage, _new_id: NewId, /) -> Decision[bool]:
        """Answers True, without records: the change is an entry of the quorum's own log."""
        return Decision((), True)

    @abstractmethod
    def change_of(self, membership: Membership, image: MetadataImage) -> Change:
        """The change to propose; KafkaError when there is nothing to change, or no majority would be left."""

    async def carry_out(self, quorum: Driver, image: MetadataImage) -> None:
        try:
            await quorum.change_membership(self.change_of(quorum.membership, image))
        except ChangeNotYet as error:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error
        except ChangeRefused as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error

    def _among(self, replicas: tuple[MemberKey, ...]) -> MemberKey | None:
        for each in replicas:
            if each.node_id == self.node_id and self.directory in (None, each.directory_id):
                return each
        return None


@dataclass(frozen=True, slots=True)
class AddVoter(QuorumChange):
    def change_of(self, membership: Membership, image: MetadataImage) -> Change:
        if self._among(membership.voters) is not None:
            raise KafkaError(ErrorCode.DUPLICATE_VOTER, f"node {self.node_id} has a vote already")
        learner = self._among(membership.learners)
        if learner is None:
            raise KafkaError(
                ErrorCode.VOTER_NOT_FOUND,
                f"node {self.node_id} does not follow the metadata log; start it with --seeds first",
            )
        if not _is_up(learner, image):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"node {self.node_id} is not up, so it gets no vote; start it first",
            )
        return Change(ChangeKind.PROMOTE, learner)


@dataclass(frozen=True, slots=True)
class RemoveVoter(QuorumChange):
    """Removes a voter or a learner: the log is no longer sent to it."""

    def change_of(self, membership: Membership, image: MetadataImage) -> Change:
        member = self._among(membership.members)
        if member is None:
            raise KafkaError(
                ErrorCode.VOTER_NOT_FOUND, f"node {self.node_id} is not a member of the metadata quorum"
            )
        require_majority_without(self.node_id, membership, image)
        return Change(ChangeKind.REMOVE, member)


def require_majority_without(node_id: int, membership: Membership, image: MetadataImage) -> None:
    """KafkaError when the live voters would be no majority once this node is removed.

    Nothing could be committed then, not even this change, until an absent voter returns. A node that is not live can
    be removed in any case: it does not vote now.
    """
    up = {each.node_id for each in membership.voters if _is_up(each, image)}
    left = {each.node_id for each in membership.voters} - {node_id}
    if node_id in up and left and len(left & up) < majority(len(left)):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"without node {node_id} no majority of the voters is left, because these do not serve:"
            f" {', '.join(map(str, sorted(left - up)))}; start them, or remove them first",
        )


def _is_up(member: MemberKey, image: MetadataImage) -> bool:
    broker = image.brokers.get(member.node_id)
    return broker is not None and not broker.is_fenced and broker.directory in (None, member.directory_id)


class ReplicaView(msgspec.Struct, frozen=True):
    """`end_offset` is -1 if unknown: only the leader knows the positions of others."""

    node_id: int
    directory: UUID
    end_offset: int


class QuorumView(msgspec.Struct, frozen=True):
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaView, ...]
    learners: tuple[ReplicaView, ...]


class ViewQuorum(msgspec.Struct, frozen=True):
    """Asks the controller for its view of the quorum; changes nothing."""

    def decide(self, _image: MetadataImage, _new_id: NewId, /) -> Decision[QuorumView | None]:
        return Decision((), None)


def view_of(status: Status) -> QuorumView:
    ends = {follower.member: follower.match_index + 1 for follower in status.followers}
    ends[status.key] = status.last_index + 1

    def seen(replicas: tuple[MemberKey, ...]) -> tuple[ReplicaView, ...]:
        return tuple(ReplicaView(each.node_id, each.directory_id, ends.get(each, -1)) for each in replicas)

    return QuorumView(
        -1 if status.leader is None else status.leader.node_id,
        status.term,
        status.commit_index + 1,
        seen(status.membership.voters),
        seen(status.membership.learners),
    )
