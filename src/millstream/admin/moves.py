"""Moves replicas and elects leaders: sends the requests, limits their speed, and waits for the end."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from millstream.admin.plans import Move
from millstream.client.admin.settings import ResourceKind, SettingsAdmin
from millstream.client.errors import ClientError, TimedOutError, from_code
from millstream.client.wire.cluster import Cluster
from millstream.cluster.placement import PLACEMENTS
from millstream.protocol.errors import ErrorCode

_LOOK_SECONDS = 0.5
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_PLACEMENT = "log.placement"
# One request must not hold up the controller for long.
_MOVES_AT_ONCE = 1000


class Ongoing(NamedTuple):
    """A partition that is being reassigned."""

    topic: str
    partition: int
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Elected(NamedTuple):
    """Partitions whose leader needed no election are in neither list."""

    elected: list[tuple[str, int]]
    failed: list[tuple[str, int, str]]


def placement_of(cluster: Cluster, controller: int) -> str:
    """The placement that the controller uses for new partitions."""
    try:
        found = SettingsAdmin(cluster).broker_configs(controller).get(_PLACEMENT)
    except (OSError, ClientError):
        return PLACEMENTS[0]
    return found.value if found is not None and found.value else PLACEMENTS[0]


def move(
    cluster: Cluster,
    moves: Sequence[Move],
    *,
    bytes_per_second: int | None = None,
    timeout_s: float | None = None,
    moved: Callable[[int], None] = lambda _count: None,
) -> None:
    """Move; without a time-out do not wait. The speed limit ends with the wait. TimedOutError if the moves take
    longer; they continue.
    """
    if not moves:
        return
    try:
        if bytes_per_second is not None:
            _throttle(cluster, moves, bytes_per_second)
        for first in range(0, len(moves), _MOVES_AT_ONCE):
            part = moves[first : first + _MOVES_AT_ONCE]
            _alter(cluster, [(each.topic, each.index, each.replicas) for each in part])
        if timeout_s is not None and not _wait(cluster, timeout_s, moved):
            raise TimedOutError(
                f"not finished after {timeout_s:g} s; it goes on without a limit of speed, and"
                " `millstream cluster reassign` shows how far it is"
            )
    finally:
        if bytes_per_second is not None:
            _unthrottle(cluster, moves)


def cancel(cluster: Cluster, wanted: Sequence[tuple[str, int]] | None) -> list[tuple[str, int]]:
    """Cancel the `wanted` reassignments, or all without `wanted`; returns the cancelled partitions."""
    ongoing = [
        (each.topic, each.partition)
        for each in reassignments(cluster)
        if wanted is None or (each.topic, each.partition) in wanted
    ]
    if ongoing:
        _alter(cluster, [(topic, index, None) for topic, index in ongoing])
    return ongoing


def reassignments(cluster: Cluster) -> list[Ongoing]:
    """All reassignments under way."""
    reply = cluster.call("list_partition_reassignments", topics=None)
    if reply.error_code:
        raise from_code("cannot list reassignments", reply.error_code, reply.error_message)
    return [
        Ongoing(topic.name, each.partition_index, each.adding_replicas, each.removing_replicas)
        for topic in reply.topics
        for each in topic.partitions
    ]


def elect_leaders(
    cluster: Cluster, wanted: Sequence[tuple[str, int]] | None, *, is_unclean: bool = False
) -> Elected:
    """Elect the preferred leader of each partition, of all without `wanted`; unclean takes any replica where no
    leader is left.
    """
    topics: dict[str, list[int]] = {}
    for topic, index in wanted or ():
        topics.setdefault(topic, []).append(index)
    asked = None if wanted is None else [{"topic": t, "partitions": tuple(p)} for t, p in topics.items()]
    reply = cluster.call("elect_leaders", election_type=int(is_unclean), topic_partitions=asked)
    if reply.error_code:
        raise from_code("cannot elect leaders", reply.error_code)
    done = Elected([], [])
    for result in reply.replica_election_results:
        for each in result.partition_result:
            if each.error_code == ErrorCode.NONE:
                done.elected.append((result.topic, each.partition_id))
            elif each.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                reason = from_code("not elected", each.error_code, each.error_message)
                done.failed.append((result.topic, each.partition_id, str(reason)))
    return done


def _wait(cluster: Cluster, seconds: float, moved: Callable[[int], None]) -> bool:
    """Whether all reassignments ended in time."""
    deadline = time.monotonic() + seconds
    total = len(reassignments(cluster))
    while left := len(reassignments(cluster)):
        moved(total - left)
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def _throttle(cluster: Cluster, moves: Sequence[Move], rate: int) -> None:
    """Limit what brokers send and fetch for these moves, by Kafka's settings."""
    lists: dict[str, tuple[set[str], set[str]]] = {}
    for each in moves:
        leaders, followers = lists.setdefault(each.topic, (set(), set()))
        leaders |= {f"{each.index}:{broker}" for broker in each.before}
        followers |= {f"{each.index}:{broker}" for broker in each.replicas if broker not in each.before}
    _configure(cluster, moves, str(rate), {t: tuple(map(_joined, both)) for t, both in lists.items()})


def _unthrottle(cluster: Cluster, moves: Sequence[Move]) -> None:
    _configure(cluster, moves, None, {each.topic: (None, None) for each in moves})


def _configure(
    cluster: Cluster, moves: Sequence[Move], rate: str | None, lists: "dict[str, tuple[str | None, ...]]"
) -> None:
    settings = SettingsAdmin(cluster)
    brokers = sorted({broker for each in moves for broker in (*each.before, *each.replicas)})
    settings.alter_configs(
        ResourceKind.BROKER, {str(broker): dict.fromkeys(_RATES, rate) for broker in brokers}
    )
    settings.alter_configs(
        ResourceKind.TOPIC, {topic: dict(zip(_LISTS, both, strict=True)) for topic, both in lists.items()}
    )


def _joined(names: set[str]) -> str:
    return ",".join(sorted(names))


def _alter(cluster: Cluster, wanted: Sequence[tuple[str, int, tuple[int, ...] | None]]) -> None:
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, index, replicas in wanted:
        topics.setdefault(topic, []).append({"partition_index": index, "replicas": replicas})
    named = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    reply = cluster.call("alter_partition_reassignments", topics=named)
    if reply.error_code:
        raise from_code("cannot reassign", reply.error_code, reply.error_message)
    failed = [
        (f"{topic.name}:{each.partition_index}", each)
        for topic in reply.responses
        for each in topic.partitions
        if each.error_code
    ]
    if failed:
        name, first = failed[0]
        action = f"{len(failed)} of {len(wanted)} partitions refused; {name}"
        raise from_code(action, first.error_code, first.error_message)
