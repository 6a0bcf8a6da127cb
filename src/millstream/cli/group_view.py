"""What a cluster knows about consumer groups, gathered with admin calls into values."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, OffsetSpec

from millstream.cli.errors import CommandError, kafka_failure
from millstream.cli.kafka import REQUEST_TIMEOUT_S, result_of

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class MemberView:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[Place, ...]

    @property
    def assigned_text(self) -> str:
        topics: dict[str, list[int]] = {}
        for topic, partition in self.assignment:
            topics.setdefault(topic, []).append(partition)
        return " ".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in topics.items())


@dataclass(frozen=True, slots=True)
class PositionView:
    topic: str
    partition: int
    committed_offset: int | None
    end_offset: int | None
    member: MemberView | None

    @property
    def lag(self) -> int | None:
        """None while nothing is committed: nobody can say where the group will start."""
        if self.committed_offset is None or self.end_offset is None:
            return None
        return max(self.end_offset - self.committed_offset, 0)

    @property
    def is_lag_unknown(self) -> bool:
        """Something is committed, and the partition's leader did not say where it ends."""
        return self.committed_offset is not None and self.end_offset is None

    @property
    def shown_lag(self) -> int | str | None:
        return "unknown" if self.is_lag_unknown else self.lag


@dataclass(frozen=True, slots=True)
class GroupView:
    group: str
    state: str
    type: str
    protocol: str
    members: tuple[MemberView, ...]
    positions: tuple[PositionView, ...]

    @property
    def lag(self) -> int:
        """Of the partitions of which it is known."""
        return sum(position.lag or 0 for position in self.positions)

    @property
    def unknown_lags(self) -> int:
        """How many partitions `lag` leaves out."""
        return sum(position.is_lag_unknown for position in self.positions)

    @property
    def shown_lag(self) -> int | str:
        unknown = self.unknown_lags
        return f"{self.lag} and unknown for {unknown} partition(s)" if unknown else self.lag

    def as_document(self) -> dict[str, object]:
        return {
            "group": self.group,
            "state": self.state,
            "type": self.type,
            "protocol": self.protocol,
            "lag": self.lag,
            "partitions_with_unknown_lag": self.unknown_lags,
            "members": [
                {
                    "member_id": member.member_id,
                    "instance_id": member.instance_id,
                    "client_id": member.client_id,
                    "host": member.host,
                    "assignment": [
                        {"topic": topic, "partition": index} for topic, index in member.assignment
                    ],
                }
                for member in self.members
            ],
            "partitions": [
                {
                    "topic": position.topic,
                    "partition": position.partition,
                    "committed_offset": position.committed_offset,
                    "end_offset": position.end_offset,
                    "lag": position.lag,
                    "member_id": position.member.member_id if position.member else None,
                }
                for position in self.positions
            ],
        }


def group_names(client: AdminClient, bootstrap: str) -> list[str]:
    listed = result_of(
        "cannot list groups", client.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S), bootstrap
    )
    for error in listed.errors:
        raise kafka_failure("cannot list all groups", error, bootstrap)
    return sorted(listing.group_id for listing in listed.valid)


def view_groups(client: AdminClient, names: list[str], bootstrap: str) -> list[GroupView]:
    """The groups as they are now; one that vanished meanwhile is left out."""
    if not names:
        return []
    described: dict[str, ConsumerGroupDescription] = {}
    futures = client.describe_consumer_groups(names, request_timeout=REQUEST_TIMEOUT_S)
    for name, future in futures.items():
        try:
            description = future.result(timeout=REQUEST_TIMEOUT_S + 5)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise kafka_failure(f"cannot describe group {name!r}", error.args[0], bootstrap) from error
        else:
            if description.state.name != "DEAD":
                described[name] = description
    committed = committed_offsets(client, described, bootstrap)
    assigned = {
        (place.topic, place.partition)
        for description in described.values()
        for member in description.members
        for place in member.assignment.topic_partitions
    }
    places = assigned.union(*committed.values())
    ends = offsets_at(client, dict.fromkeys(places, OffsetSpec.latest()))
    return [_view(description, committed[name], ends) for name, description in described.items()]


def view_group(client: AdminClient, name: str, bootstrap: str) -> GroupView | None:
    return next(iter(view_groups(client, [name], bootstrap)), None)


def unknown_group(name: str, bootstrap: str) -> CommandError:
    return CommandError(f"there is no group {name!r} at {bootstrap}; see `millstream group list`")


def committed_offsets(
    client: AdminClient, names: Iterable[str], bootstrap: str
) -> dict[str, dict[Place, int]]:
    """What each group has committed. librdkafka takes one group a call, so the calls run side by side."""
    calls: dict[str, Future[Any]] = {
        name: client.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name)], request_timeout=REQUEST_TIMEOUT_S
        )[name]
        for name in names
    }
    return {
        name: {
            (found.topic, found.partition): found.offset
            for found in result_of(f"cannot read the offsets of {name!r}", call, bootstrap).topic_partitions
            if found.offset >= 0
        }
        for name, call in calls.items()
    }


def offsets_at(client: AdminClient, wanted: Mapping[Place, Any]) -> dict[Place, int]:
    """The offset of each specification; a partition that cannot answer is left out."""
    if not wanted:
        return {}
    asked = {TopicPartition(*place): spec for place, spec in wanted.items()}
    found: dict[Place, int] = {}
    for place, future in client.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S).items():
        try:
            found[place.topic, place.partition] = future.result(timeout=REQUEST_TIMEOUT_S + 5).offset
        except KafkaException:
            continue
    return found


def _view(
    description: ConsumerGroupDescription, committed: Mapping[Place, int], ends: Mapping[Place, int]
) -> GroupView:
    members = tuple(
        MemberView(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.host.removeprefix("/"),
            tuple(sorted((place.topic, place.partition) for place in member.assignment.topic_partitions)),
        )
        for member in sorted(description.members, key=lambda member: (member.client_id, member.member_id))
    )
    owners = {place: member for member in members for place in member.assignment}
    return GroupView(
        description.group_id,
        _state_name(description.state.name),
        description.type.name.lower(),
        description.partition_assignor or "",
        members,
        tuple(
            PositionView(*place, committed.get(place), ends.get(place), owners.get(place))
            for place in sorted(owners.keys() | committed.keys())
        ),
    )


def _state_name(name: str) -> str:
    """Kafka's spelling: PREPARING_REBALANCING is PreparingRebalance."""
    return "".join(word.capitalize() for word in name.replace("REBALANCING", "REBALANCE").split("_"))
