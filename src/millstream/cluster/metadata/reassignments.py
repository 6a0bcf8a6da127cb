"""Reassignments: new replicas are added first; old ones are removed when all new ones are in sync."""

from collections import Counter

import msgspec
from msgspec.structs import replace

from millstream.cluster.metadata.assignment import check_replicas
from millstream.cluster.metadata.commands import Decision, NewId
from millstream.cluster.metadata.difference import partition_changed
from millstream.cluster.metadata.election import Losses, next_state, rules_of
from millstream.cluster.metadata.image import MetadataImage, PartitionImage, TopicImage
from millstream.cluster.metadata.records import MetadataRecord
from millstream.cluster.placement import Replicas
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.sometimes import sometimes


class Reassignment(msgspec.Struct, frozen=True):
    """The partition's new replicas, preferred leader first; None cancels a reassignment."""

    topic: str
    index: int
    replicas: Replicas | None


class ReassignmentOutcome(msgspec.Struct, frozen=True):
    topic: str
    index: int
    error: KafkaError | None = None


class AlterReassignments(msgspec.Struct, frozen=True):
    reassignments: tuple[Reassignment, ...]
    allow_other_factor: bool = True

    def decide(self, image: MetadataImage, _new_id: NewId, /) -> Decision[tuple[ReassignmentOutcome, ...]]:
        times = Counter((each.topic, each.index) for each in self.reassignments)
        records: list[MetadataRecord] = []
        outcomes: dict[tuple[str, int], ReassignmentOutcome] = {}
        for each in self.reassignments:
            place = (each.topic, each.index)
            if place in outcomes:
                continue
            try:
                if times[place] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition is named more than once.")
                records += self._alter(image, each)
                outcomes[place] = ReassignmentOutcome(*place)
            except KafkaError as error:
                outcomes[place] = ReassignmentOutcome(*place, error.as_value())
        return Decision(tuple(records), tuple(outcomes.values()))

    def _alter(self, image: MetadataImage, wanted: Reassignment) -> list[MetadataRecord]:
        p = image.partition(wanted.topic, wanted.index)
        if p is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {wanted.topic}-{wanted.index}."
            )
        topic = image.topics[wanted.topic]
        before = _without_adding(p)
        if wanted.replicas is None:
            if not p.adding and not p.removing:
                raise KafkaError(
                    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "Nothing is under way to be cancelled."
                )
            sometimes("a move was taken back half-way")
            target = before
        else:
            check_replicas(image, wanted.replicas)
            if not self.allow_other_factor and len(wanted.replicas) != len(before):
                raise KafkaError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"The partition has {len(before)} replica(s), and the request allows no other number.",
                )
            target = wanted.replicas
        return _start(image, topic, p, before, target)


def _without_adding(p: PartitionImage) -> Replicas:
    return tuple(b for b in p.replicas if b not in p.adding)


def _start(
    image: MetadataImage, topic: TopicImage, p: PartitionImage, before: Replicas, target: Replicas
) -> list[MetadataRecord]:
    # An added replica in sync may lead, or have led and not know yet that another does: it goes like others.
    # It stays in both lists, so that a repeated request finds what there was before.
    turned_back = tuple(b for b in p.adding if b in p.isr and b not in target)
    removing = tuple(b for b in before if b not in target) + turned_back
    adding = tuple(b for b in target if b not in before) + turned_back
    draft = replace(p, replicas=target + removing, adding=adding, removing=removing)
    # Other replicas that are no longer to be added are removed at once: nothing relies on them.
    isr = tuple(b for b in p.isr if b in draft.replicas)
    draft = replace(draft, elr=tuple(b for b in p.elr if b in draft.replicas))
    if not p.isr and not draft.elr and not p.counted_on <= set(draft.replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Of the replicas {list(draft.replicas)} none could lead; wait until one can.",
        )
    gone = frozenset(p.replicas) - frozenset(draft.replicas)
    # Replicas of removed brokers count as lost, but a partition still waits for its only replica.
    given_up = p.counted_on - image.brokers.keys()
    after = next_state(
        draft, image.brokers, rules_of(image, topic), isr=isr, losses=Losses(given_up, given_up)
    )
    if replace(after, partition_epoch=p.partition_epoch) == p:
        return []
    bump = bool(gone) and after.leader_epoch == p.leader_epoch
    after = replace(after, leader_epoch=after.leader_epoch + bump, partition_epoch=p.partition_epoch + 1)
    return [partition_changed(topic.topic_id, after)]
