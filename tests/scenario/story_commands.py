"""Requests as a story words them."""

from collections.abc import Callable
from typing import Any

from millstream.coordinator.groups.consumer_protocol import (
    Subscription,
    encode_assignment,
    encode_subscription,
)
from millstream.coordinator.groups.records import PartitionSet
from millstream.coordinator.groups.requests import (
    CommitOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DescribeConsumerGroup,
    DescribeGroup,
    FetchOffsets,
    GroupRequest,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    MemberHeartbeat,
    OffsetToCommit,
    SyncGroup,
)
from scenario.harness import KnownTopics

Options = dict[str, str]


def parse_partitions(text: str) -> dict[str, frozenset[int]]:
    """`orders:0,1/users:2` as partitions by topic."""
    parsed: dict[str, frozenset[int]] = {}
    for part in filter(None, text.split("/")):
        topic, _, indexes = part.partition(":")
        parsed[topic] = frozenset(int(index) for index in indexes.split(",") if index)
    return parsed


def _ids(topics: KnownTopics, text: str) -> PartitionSet:
    return {topics.topics[name].topic_id: ps for name, ps in parse_partitions(text).items()}


def _member(client: Any, options: Options) -> str:
    return options.get("member", client.member_id)


def _instance(client: Any, options: Options) -> str | None:
    if "instance" in options:
        client.instance_id = options["instance"]
    return client.instance_id


def _join(client: Any, words: list[str], options: Options, topics: KnownTopics) -> JoinGroup:
    if "topics" in options:
        client.topics = tuple(options["topics"].split(","))
    subscription = Subscription(
        frozenset(client.topics),
        parse_partitions(options.get("owned", "")),
        version=int(options.get("version", 1)),
    )
    metadata = encode_subscription(subscription)
    names = options.get("protocols", "range").split(",")
    return JoinGroup(
        group_id=words[0] if words else "",
        member_id=_member(client, options),
        instance_id=_instance(client, options),
        client_id=client.name,
        client_host="/127.0.0.1",
        protocol_type=options.get("type", "consumer"),
        protocols=tuple((name, metadata) for name in names if name),
        session_timeout_ms=int(options.get("session", "10000")),
        rebalance_timeout_ms=int(options.get("rebalance", "60000")),
        requires_known_member_id="old" not in words,
        supports_skip_assignment="old" not in words,
    )


def _sync(client: Any, words: list[str], options: Options, topics: KnownTopics) -> SyncGroup:
    given = {name[1:]: value for name, value in options.items() if name.startswith("@")}
    assignments = tuple(
        (member_id, encode_assignment(parse_partitions(value), 1)) for member_id, value in given.items()
    )
    return SyncGroup(
        words[0],
        _member(client, options),
        int(options.get("generation", client.generation)),
        client.instance_id,
        options.get("type"),
        options.get("protocol"),
        assignments,
    )


def _heartbeat(client: Any, words: list[str], options: Options, topics: KnownTopics) -> MemberHeartbeat:
    generation = int(options.get("generation", client.generation))
    return MemberHeartbeat(words[0], _member(client, options), generation, client.instance_id)


def _leave(client: Any, words: list[str], options: Options, topics: KnownTopics) -> LeaveGroup:
    if "members" in options:
        members = tuple(LeavingMember(member_id) for member_id in options["members"].split(","))
    else:
        members = (LeavingMember(_member(client, options), _instance(client, options)),)
    return LeaveGroup(words[0], members)


def _commit(client: Any, words: list[str], options: Options, topics: KnownTopics) -> CommitOffsets:
    """`commit g orders:0@42 orders:1@7`; a `simple` consumer belongs to no group."""
    offsets = []
    for word in words[1:]:
        if "@" in word:
            place, _, offset = word.partition("@")
            topic, _, partition = place.partition(":")
            metadata = "m" * int(options.get("metadata-bytes", "0"))
            offsets.append(OffsetToCommit(topic, int(partition), int(offset), -1, metadata))
    simple = "simple" in words
    generation = client.generation if client.generation >= 0 else client.epoch
    return CommitOffsets(
        words[0],
        "" if simple else _member(client, options),
        -1 if simple else int(options.get("generation", generation)),
        tuple(offsets),
        None if simple else client.instance_id,
        int(options.get("retention", "-1")),
        "old" not in words,
    )


def _fetch(client: Any, words: list[str], options: Options, topics: KnownTopics) -> FetchOffsets:
    wanted = parse_partitions(words[1]) if len(words) > 1 else None
    return FetchOffsets(
        words[0],
        None if wanted is None else tuple((topic, tuple(sorted(ps))) for topic, ps in wanted.items()),
        options.get("member"),
        int(options.get("epoch", "-1")),
    )


def _delete_offsets(client: Any, words: list[str], options: Options, topics: KnownTopics) -> DeleteOffsets:
    places = [(topic, p) for topic, ps in parse_partitions(words[1]).items() for p in sorted(ps)]
    return DeleteOffsets(words[0], tuple(places))


def _consume(client: Any, words: list[str], options: Options, topics: KnownTopics) -> ConsumerHeartbeat:
    """A KIP-848 heartbeat; the first one joins, `leave` and `away` are its two ways to go."""
    epoch = int(options.get("epoch", client.epoch))
    if "leave" in words:
        epoch = -1
    if "away" in words:
        epoch = -2
    joins = epoch == 0
    names = options.get("topics")
    owned = options.get("owned")
    client.member_id = options.get("member", client.member_id or f"m-{client.name}")
    return ConsumerHeartbeat(
        words[0],
        "" if "anonymous" in words else client.member_id,
        epoch,
        client.name,
        "/127.0.0.1",
        _instance(client, options),
        None,
        int(options["rebalance"]) if "rebalance" in options else (60_000 if joins else None),
        frozenset(filter(None, names.split(","))) if names is not None else None,
        options.get("regex"),
        options.get("assignor"),
        _ids(topics, owned) if owned is not None else ({} if joins else None),
        "anonymous" in words,
    )


def _list(client: Any, words: list[str], options: Options, topics: KnownTopics) -> ListGroups:
    states, types = options.get("states", ""), options.get("types", "")
    return ListGroups(frozenset(filter(None, states.split(","))), frozenset(filter(None, types.split(","))))


COMMANDS: dict[str, Callable[[Any, list[str], Options, KnownTopics], GroupRequest]] = {
    "join": _join,
    "sync": _sync,
    "heartbeat": _heartbeat,
    "leave": _leave,
    "commit": _commit,
    "fetch": _fetch,
    "delete-offsets": _delete_offsets,
    "consume": _consume,
    "list": _list,
    "describe": lambda client, words, options, topics: DescribeGroup(words[0]),
    "describe-consumer": lambda client, words, options, topics: DescribeConsumerGroup(words[0]),
    "delete": lambda client, words, options, topics: DeleteGroup(words[0]),
}
