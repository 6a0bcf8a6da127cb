"""Moving replicas: what goes where, the request, its speed, and waiting for its end."""

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from millstream.cli.cluster_calls import ClusterCalls, reason_of
from millstream.cli.cluster_view import ClusterView, PartitionView, partitions_of
from millstream.cli.errors import CommandError, UsageError
from millstream.cluster.placement import VIRTUAL_NODES, Candidate, Placed, placement_named, with_load
from millstream.protocol.errors import ErrorCode

# Topic, partition, replicas that are added, replicas that go.
Ongoing = tuple[str, int, tuple[int, ...], tuple[int, ...]]

_LOOK_SECONDS = 0.5
_TOPIC, _BROKER = 2, 4
_SET, _DELETE = 0, 1
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
# One request may not hold up the controller for long.
_MOVES_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Move:
    topic: str
    index: int
    before: tuple[int, ...]
    replicas: tuple[int, ...]

    def as_document(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "partition": self.index,
            "from": list(self.before),
            "replicas": list(self.replicas),
        }


def plan(view: ClusterView, placement: str, virtual_nodes: int = VIRTUAL_NODES) -> list[Move]:
    """Every partition where the placement puts it among the live brokers."""
    candidates = [Candidate(each.broker_id, each.rack) for each in view.live_brokers()]
    for each in view.partitions:
        if len(each.replicas) > len(candidates):
            raise CommandError(
                f"{each.topic}-{each.index} has {len(each.replicas)} replicas and there would be"
                f" {len(candidates)} brokers for them; start those that are fenced, or add one"
                " (`millstream cluster status`)"
            )
    placed = [Placed(each.topic, each.index, each.replicas) for each in view.partitions]
    arranged = placement_named(placement, virtual_nodes).arrange(candidates, placed)
    return [
        Move(each.topic, each.index, each.replicas, replicas)
        for each, replicas in zip(placed, arranged, strict=True)
        if replicas != each.replicas
    ]


def evacuate(
    view: ClusterView, broker_id: int, placement: str, virtual_nodes: int = VIRTUAL_NODES
) -> list[Move]:
    """Only what the broker has goes elsewhere, to where the placement would have it instead."""
    chosen = placement_named(placement, virtual_nodes)
    kept = [each.replicas for each in view.partitions]
    load = with_load(
        (Candidate(each.broker_id, each.rack) for each in view.live_brokers() if each.broker_id != broker_id),
        kept,
    )
    moves = []
    for each in view.partitions:
        if broker_id not in each.replicas:
            continue
        partition = Placed(each.topic, each.index, each.replicas)
        free = [other for other in load if other.broker_id not in each.replicas]
        if not free:
            raise CommandError(
                f"{each.topic}-{each.index} has replicas on {list(each.replicas)} and no other live broker is"
                " left for it; add a broker, or give it fewer replicas with `millstream cluster reassign`"
            )
        best = chosen.substitutes(free, partition)[0].broker_id
        replicas = tuple(best if broker == broker_id else broker for broker in each.replicas)
        load = [
            replace(other, replicas=other.replicas + 1) if other.broker_id == best else other
            for other in load
        ]
        moves.append(Move(each.topic, each.index, each.replicas, replicas))
    return moves


def moves_of(
    calls: ClusterCalls, wanted: Iterable[tuple[str, int | None]], replicas: tuple[int, ...]
) -> list[Move]:
    """The same replicas for each of the partitions; a topic without a number is all of its partitions."""
    return [Move(each.topic, each.index, each.replicas, replicas) for each in _chosen(calls, wanted)]


def moves_in(calls: ClusterCalls, file: Path) -> list[Move]:
    """A plan in the format of Kafka's own tool: `{"partitions": [{"topic", "partition", "replicas"}, ...]}`."""
    try:
        document = json.loads(file.read_text())
        listed = [
            (each["topic"], int(each["partition"]), tuple(map(int, each["replicas"])))
            for each in document["partitions"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f'{file} is not a plan: {error}; write {{"partitions": [{{"topic": "t", "partition": 0,'
            ' "replicas": [1, 2, 3]}]}'
        ) from error
    known = {(each.topic, each.index): each for found in _known(calls).values() for each in found}
    moves = []
    for topic, index, replicas in listed:
        if (topic, index) not in known:
            raise CommandError(f"there is no partition {topic}:{index}")
        moves.append(Move(topic, index, known[topic, index].replicas, replicas))
    return moves


def start(calls: ClusterCalls, moves: Sequence[Move], rate: int | None) -> None:
    """Ask for all moves; the first one that is refused ends the command, and says how many were not."""
    if rate is not None:
        throttle(calls, moves, rate)
    for first in range(0, len(moves), _MOVES_AT_ONCE):
        _alter(
            calls, [(each.topic, each.index, each.replicas) for each in moves[first : first + _MOVES_AT_ONCE]]
        )


def cancel(calls: ClusterCalls, wanted: Sequence[tuple[str, int | None]]) -> list[tuple[str, int]]:
    """Call off what is under way, all of it without `wanted`; returns what that was."""
    chosen = {(each.topic, each.index) for each in _chosen(calls, wanted)}
    ongoing = [
        (topic, index)
        for topic, index, _, _ in reassignments(calls)
        if not wanted or (topic, index) in chosen
    ]
    if ongoing:
        _alter(calls, [(topic, index, None) for topic, index in ongoing])
    return ongoing


def reassignments(calls: ClusterCalls) -> list[Ongoing]:
    """Everything that is under way."""
    reply = calls.checked("cannot list reassignments", "list_partition_reassignments", topics=None)
    return [
        (topic.name, each.partition_index, each.adding_replicas, each.removing_replicas)
        for topic in reply.topics
        for each in topic.partitions
    ]


def wait(calls: ClusterCalls, seconds: float, progress: Any) -> bool:
    """Whether everything under way came to its end in time."""
    deadline = time.monotonic() + seconds
    total = len(reassignments(calls))
    while left := len(reassignments(calls)):
        progress.update(total - left)
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    progress.clear()
    return True


def throttle(calls: ClusterCalls, moves: Sequence[Move], rate: int) -> None:
    """Limit what brokers give away and fetch for these moves, by Kafka's settings."""
    brokers = sorted({broker for each in moves for broker in (*each.before, *each.replicas)})
    _configure(calls, _BROKER, {str(broker): dict.fromkeys(_RATES, str(rate)) for broker in brokers})
    lists: dict[str, tuple[set[str], set[str]]] = {}
    for each in moves:
        leaders, followers = lists.setdefault(each.topic, (set(), set()))
        leaders |= {f"{each.index}:{broker}" for broker in each.before}
        followers |= {f"{each.index}:{broker}" for broker in each.replicas if broker not in each.before}
    _configure(
        calls,
        _TOPIC,
        {
            topic: dict(zip(_LISTS, (",".join(sorted(one)) for one in both), strict=True))
            for topic, both in lists.items()
        },
    )


def unthrottle(calls: ClusterCalls, moves: Sequence[Move]) -> None:
    brokers = sorted({broker for each in moves for broker in (*each.before, *each.replicas)})
    _configure(calls, _BROKER, {str(broker): dict.fromkeys(_RATES) for broker in brokers})
    _configure(calls, _TOPIC, {each.topic: dict.fromkeys(_LISTS) for each in moves})


def _known(calls: ClusterCalls) -> dict[str, list[PartitionView]]:
    known: dict[str, list[PartitionView]] = {}
    for each in partitions_of(calls):
        known.setdefault(each.topic, []).append(each)
    return known


def _chosen(calls: ClusterCalls, wanted: Iterable[tuple[str, int | None]]) -> list[PartitionView]:
    """What is named; a topic without a number is all of its partitions. A name that fits nothing is an error."""
    known = _known(calls)
    chosen = []
    for topic, index in wanted:
        found = [each for each in known.get(topic, ()) if index in (None, each.index)]
        if not found:
            raise CommandError(f"there is no partition {topic}" + ("" if index is None else f":{index}"))
        chosen += found
    return chosen


def _alter(calls: ClusterCalls, wanted: Sequence[tuple[str, int, tuple[int, ...] | None]]) -> None:
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, index, replicas in wanted:
        topics.setdefault(topic, []).append({"partition_index": index, "replicas": replicas})
    reply = calls.checked(
        "cannot reassign",
        "alter_partition_reassignments",
        topics=[{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    )
    failed = [
        (topic.name, each)
        for topic in reply.responses
        for each in topic.partitions
        if each.error_code != ErrorCode.NONE
    ]
    if failed:
        name, first = failed[0]
        raise CommandError(
            f"{len(failed)} of {len(wanted)} partitions refused; {name}:{first.partition_index}: {reason_of(first)}"
        )


def _configure(calls: ClusterCalls, kind: int, settings: dict[str, dict[str, str | None]]) -> None:
    """Set what has a value, and remove what has none."""
    resources = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [
                {"name": key, "config_operation": _DELETE if value is None else _SET, "value": value}
                for key, value in values.items()
            ],
        }
        for name, values in settings.items()
    ]
    if not resources:
        return
    for each in calls.call("incremental_alter_configs", resources=resources, validate_only=False).responses:
        if each.error_code != ErrorCode.NONE:
            raise CommandError(f"cannot limit the speed of {each.resource_name}: {reason_of(each)}")
