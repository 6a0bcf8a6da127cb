"""Moving a group: which partitions, from where to where, and the commit that does it."""

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from millstream.cli.errors import CommandError, kafka_failure, unknown_topic
from millstream.cli.group_view import Place, committed_offsets, offsets_at, view_group
from millstream.cli.kafka import REQUEST_TIMEOUT_S, result_of
from millstream.cli.reset_target import ResetTarget, TargetKind


@dataclass(frozen=True, slots=True)
class Move:
    topic: str
    partition: int
    old_offset: int | None
    new_offset: int
    end_offset: int

    @property
    def lag(self) -> int:
        return self.end_offset - self.new_offset


def require_idle(client: AdminClient, group: str, bootstrap: str) -> None:
    """The group may have no members, or not exist yet."""
    view = view_group(client, group, bootstrap)
    if view is not None and (view.members or view.state != "Empty"):
        count = len(view.members)
        members = "1 active member" if count == 1 else f"{count} active members"
        raise CommandError(
            f"group {group!r} has {members} ({view.state}); stop them first,"
            " offsets can be reset only while nobody reads"
        )


def plan_moves(
    client: AdminClient,
    group: str,
    topics: Mapping[str, frozenset[int] | None],
    target: ResetTarget,
    bootstrap: str,
) -> list[Move]:
    """Old and new offset of every partition in question; without `topics` of all that the group committed."""
    committed = committed_offsets(client, [group], bootstrap)[group]
    if not topics and not committed:
        raise CommandError(f"group {group!r} has committed nothing; name the topics with --topic")
    wanted = topics or dict.fromkeys(topic for topic, _ in committed)
    places = _places(client, wanted, bootstrap)
    starts = offsets_at(client, dict.fromkeys(places, OffsetSpec.earliest()))
    ends = offsets_at(client, dict.fromkeys(places, OffsetSpec.latest()))
    by_time: dict[Place, int] = {}
    if target.kind is TargetKind.TIMESTAMP:
        by_time = offsets_at(client, dict.fromkeys(places, OffsetSpec.for_timestamp(target.number)))
    moves = []
    for topic, index in places:
        place = (topic, index)
        if place not in starts or place not in ends:
            raise CommandError(f"partition {index} of topic {topic!r} does not answer; nothing was changed")
        # librdkafka answers -1 where no record is as young.
        at = by_time.get(place, -1)
        old = committed.get(place)
        new = target.offset_in(starts[place], ends[place], old, at if at >= 0 else None)
        if new is None:
            raise CommandError(
                f"group {group!r} has committed nothing for partition {index} of topic {topic!r},"
                " so there is nothing to shift; use one of the other targets"
            )
        moves.append(Move(topic, index, old, new, ends[place]))
    return moves


def apply_moves(client: AdminClient, group: str, moves: list[Move], bootstrap: str) -> None:
    positions = [TopicPartition(move.topic, move.partition, move.new_offset) for move in moves]
    call = client.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, positions)], request_timeout=REQUEST_TIMEOUT_S
    )[group]
    action = f"cannot reset the offsets of group {group!r}"
    for position in result_of(action, call, bootstrap).topic_partitions:
        if position.error is not None:
            raise kafka_failure(
                f"{action} at {position.topic}:{position.partition}", position.error, bootstrap
            )


def _places(client: AdminClient, wanted: Mapping[str, frozenset[int] | None], bootstrap: str) -> list[Place]:
    try:
        known = client.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    except KafkaException as error:
        raise kafka_failure("cannot list topics", error.args[0], bootstrap) from error
    places: list[Place] = []
    for topic, indexes in wanted.items():
        if topic not in known:
            raise unknown_topic(topic, bootstrap)
        there = known[topic].partitions.keys()
        missing = sorted((indexes or frozenset()) - there)
        if missing:
            raise CommandError(
                f"topic {topic!r} has no partition {missing[0]}; it has partitions 0 to {len(there) - 1}"
            )
        places += [(topic, index) for index in sorted(there if indexes is None else indexes)]
    return places
