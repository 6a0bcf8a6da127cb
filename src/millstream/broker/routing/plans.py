"""How requests are split into parts for several nodes, and the answers joined."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from millstream.broker.routing.targets import Targets, coordinator_of
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import ConfigResource
from millstream.protocol.codec import Message
from millstream.protocol.errors import ErrorCode

# The part of the request for each node. Parts that no node can answer go to this node, which refuses them.
Parts = dict[int, Any]


class Plan(NamedTuple):
    cut: Callable[[Targets, Any], Parts]
    join: Callable[[Any, list[Any]], Any]
    is_by_topic: bool = False
    """Each topic's setting client.routing decides who answers, not the node's alone."""
    lost: ErrorCode | None = None
    """The error for parts of a node that does not answer; without it this node answers them."""


# Partitions, by leader


def _index_of(partition: Any, index: str) -> int:
    """A partition's number; in some APIs the partition is just that."""
    number: int = partition if isinstance(partition, int) else getattr(partition, index)
    return number


def _cut_topics(name: str, index: str, asked: str, targets: Targets, request: Message) -> Parts:
    by_node: dict[int, dict[int, list[Any]]] = {}
    for place, topic in enumerate(request.topics):
        for partition in getattr(topic, asked):
            leader = targets.leader(getattr(topic, name), _index_of(partition, index))
            topics = by_node.setdefault(targets.me if leader is None else leader, {})
            topics.setdefault(place, []).append(partition)
    return {
        node: replace(
            request,
            topics=tuple(
                replace(request.topics[place], **{asked: tuple(partitions)})
                for place, partitions in topics.items()
            ),
        )
        for node, topics in by_node.items()
    }


def _join_topics(name: str, index: str, asked: str, request: Message, answers: list[Any]) -> Any:
    found: dict[tuple[str, int], list[Any]] = {}
    shells: dict[str, Any] = {}
    for answer in answers:
        for topic in answer.topics:
            shells[getattr(topic, name)] = topic
            for partition in topic.partitions:
                found.setdefault((getattr(topic, name), getattr(partition, index)), []).append(partition)
    topics = []
    for topic in request.topics:
        key = getattr(topic, name)
        partitions = [
            waiting.pop(0)
            for each in getattr(topic, asked)
            if (waiting := found.get((key, _index_of(each, index))))
        ]
        if partitions:
            topics.append(replace(shells[key], partitions=tuple(partitions)))
    return replace(answers[0], topics=tuple(topics))


# Groups, by coordinator, and settings, by owner


def _cut_list(
    name: str, node_of: Callable[[MetadataImage, Any], int | None], targets: Targets, request: Message
) -> Parts:
    by_node: dict[int, list[Any]] = {}
    for each in getattr(request, name):
        node = node_of(targets.image, each)
        by_node.setdefault(targets.me if node is None else node, []).append(each)
    return {node: replace(request, **{name: tuple(each)}) for node, each in by_node.items()}


def _join_list(
    asked: str, answered: str, key: Callable[[Any], object], request: Message, answers: list[Any]
) -> Any:
    found: dict[object, list[Any]] = {}
    for answer in answers:
        for each in getattr(answer, answered):
            found.setdefault(key(each), []).append(each)
    # Some APIs answer once for an element that is named twice.
    ordered = [waiting.pop(0) for each in getattr(request, asked) if (waiting := found.get(key(each)))]
    return replace(answers[0], **{answered: tuple(ordered)})


def _group_id(each: Any) -> object:
    return each if isinstance(each, str) else each.group_id


def _coordinator(image: MetadataImage, each: Any) -> int | None:
    return coordinator_of(image, each if isinstance(each, str) else each.group_id)


def _resource(each: Any) -> object:
    return each.resource_type, each.resource_name


def _owner(image: MetadataImage, resource: Any) -> int | None:
    """The live broker whose settings are named; None for others, which any node can answer."""
    name = resource.resource_name
    if resource.resource_type != ConfigResource.BROKER or not name.isdecimal():
        return None
    return int(name) if image.is_live(int(name)) else None


# APIs that every node answers for itself


def _cut_all(targets: Targets, request: Message) -> Parts:
    return {broker.broker_id: request for broker in targets.image.live_brokers}


def _join_groups(_request: Message, answers: list[Any]) -> Any:
    failed = [each for each in answers if each.error_code != ErrorCode.NONE]
    groups = {group.group_id: group for answer in answers for group in answer.groups}
    return replace((failed or answers)[0], groups=tuple(groups.values()))


def _of_partitions(name: str, index: str, asked: str = "partitions") -> Plan:
    return Plan(
        partial(_cut_topics, name, index, asked), partial(_join_topics, name, index, asked), is_by_topic=True
    )


def _of_groups(asked: str, answered: str) -> Plan:
    return Plan(partial(_cut_list, asked, _coordinator), partial(_join_list, asked, answered, _group_id))


PLANS = {
    "list_offsets": _of_partitions("name", "partition_index"),
    "delete_records": _of_partitions("name", "partition_index"),
    "describe_producers": _of_partitions("name", "partition_index", "partition_indexes"),
    "offset_for_leader_epoch": _of_partitions("topic", "partition"),
    "offset_fetch": _of_groups("groups", "groups"),
    "describe_groups": _of_groups("groups", "groups"),
    "delete_groups": _of_groups("groups_names", "results"),
    "consumer_group_describe": _of_groups("group_ids", "groups"),
    "share_group_describe": _of_groups("group_ids", "groups"),
    "describe_configs": Plan(
        partial(_cut_list, "resources", _owner), partial(_join_list, "resources", "results", _resource)
    ),
    # An incomplete list of groups must carry an error.
    "list_groups": Plan(_cut_all, _join_groups, lost=ErrorCode.COORDINATOR_NOT_AVAILABLE),
}
