"""Who has a vote in the metadata quorum, changed by one node at a time through the quorum's own log; and the quorum as
its leader sees it: who takes part, and how far each copy of the log reaches."""

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
    """Carried out by the leader of the quorum; without `directory` the node's id alone says who is meant."""

    node_id: int
    directory: UUID | None = None

    def decide(self, _image: MetadataImage, _new_id: NewId, /) -> Decision[bool]:
        """Answers True. The quorum's own log holds the change: there are no records of it."""
        return Decision((), True)

    @abstractmethod
    def change_of(self, membership: Membership, image: MetadataImage) -> Change:
        """What to ask of the quorum; KafkaError when there is nothing to change, or it would leave no majority."""

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
    """Also of a node that only follows: it is not sent the log any more."""

    def change_of(self, membership: Membership, image: MetadataImage) -> Change:
        member = self._among(membership.members)
        if member is None:
            raise KafkaError(
                ErrorCode.VOTER_NOT_FOUND, f"node {self.node_id} is not a member of the metadata quorum"
            )
        require_majority_without(self.node_id, membership, image)
        return Change(ChangeKind.REMOVE, member)


def require_majority_without(node_id: int, membership: Membership, image: MetadataImage) -> None:
    """KafkaError where the voters that are up are no majority of those that are left when this node goes.

    Nothing could be committed then, this change included, before one that is away comes back. A node that is not up
    gives no votes now: its removal takes none away.
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
    """`end_offset` is -1 where it is not known: how far others are only the leader knows."""

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
    """Asks the controller for its view. It changes nothing, and the quorum rather than the image answers it."""

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
