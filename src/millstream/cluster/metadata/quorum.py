"""Who has a vote in the metadata quorum, changed by one node at a time through the quorum's own log; and the quorum as
its leader sees it: who takes part, and how far each copy of the log reaches."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from uuid import UUID

import msgspec

from millstream.cluster.metadata.commands import Decision, NewId
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.raft.driver import Driver
from millstream.cluster.raft.errors import ChangeRefused
from millstream.cluster.raft.membership import Change, ChangeKind, MemberKey, Membership
from millstream.cluster.raft.status import Status
from millstream.protocol.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class QuorumChange(ABC):
    """Carried out by the leader of the quorum; without `directory` the node's id alone says who is meant."""

    node_id: int
    directory: UUID | None = None

    def decide(self, _image: MetadataImage, _new_id: NewId, /) -> Decision[bool]:
        """The quorum's own log holds the change: there are no records of it."""
        return Decision((), True)

    @abstractmethod
    def change_of(self, membership: Membership) -> Change:
        """What to ask of the quorum; KafkaError when there is nothing to change."""

    async def carry_out(self, quorum: Driver) -> None:
        try:
            await quorum.change_membership(self.change_of(quorum.status().membership))
        except ChangeRefused as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error

    def _among(self, replicas: tuple[MemberKey, ...]) -> MemberKey | None:
        for each in replicas:
            if each.node_id == self.node_id and self.directory in (None, each.directory_id):
                return each
        return None


@dataclass(frozen=True, slots=True)
class AddVoter(QuorumChange):
    def change_of(self, membership: Membership) -> Change:
        if self._among(membership.voters) is not None:
            raise KafkaError(ErrorCode.DUPLICATE_VOTER, f"node {self.node_id} has a vote already")
        learner = self._among(membership.learners)
        if learner is None:
            raise KafkaError(
                ErrorCode.VOTER_NOT_FOUND,
                f"node {self.node_id} does not follow the metadata log; start it with --seeds first",
            )
        return Change(ChangeKind.PROMOTE, learner)


@dataclass(frozen=True, slots=True)
class RemoveVoter(QuorumChange):
    """Also of a node that only follows: it is not sent the log any more."""

    def change_of(self, membership: Membership) -> Change:
        member = self._among(membership.members)
        if member is None:
            raise KafkaError(
                ErrorCode.VOTER_NOT_FOUND, f"node {self.node_id} is not a member of the metadata quorum"
            )
        return Change(ChangeKind.REMOVE, member)


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
