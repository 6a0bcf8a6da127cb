"""The metadata quorum as its leader sees it: who takes part, and how far each copy of the log reaches."""

from uuid import UUID

import msgspec

from millstream.cluster.metadata.commands import Decision, NewId
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.raft.membership import MemberKey
from millstream.cluster.raft.status import Status


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
