"""How fast a replica is made: for a node that was away, for one that lost its disk, and for a new one.

The clock of a speed begins when the node is ready to serve, and ends when every partition has all replicas in sync;
what the node had on its disk by then does not count.
"""

import socket
import struct
import time
from dataclasses import dataclass, field

from bench.loads import ProduceLoad
from bench.metadata_view import ClusterState
from bench.peers import Durability, PeerError
from bench.peers.cluster import Cluster
from bench.rawclient import call
from bench.scenarios.cluster_names import (
    CATCH_UP_AWAY,
    CATCH_UP_EMPTY,
    CATCH_UP_IN_SYNC,
    CATCH_UP_READY,
    REASSIGNMENT,
)
from bench.session import Session

NAME = "catch-up"
_PARTITIONS = 12
_MESSAGE_BYTES = 1_000
_AWAY, _NEW = 3, 4
_PRODUCE_SECONDS = 120.0
_ALTER_REASSIGNMENTS = 45


@dataclass(slots=True)
class _Measured:
    mb_per_second: dict[str, list[float]] = field(
        default_factory=lambda: {name: [] for name in (CATCH_UP_AWAY, CATCH_UP_EMPTY, REASSIGNMENT)}
    )
    ready: list[float] = field(default_factory=list)
    in_sync: list[float] = field(default_factory=list)


def run(session: Session) -> None:
    rounds = session.plan.rounds_of(full=3, quick=1)
    size = 60_000_000 if session.plan.quick else 800_000_000
    load = ProduceLoad(_PARTITIONS, _MESSAGE_BYTES, _PRODUCE_SECONDS, max_bytes=size)
    measured = _Measured()
    with session.cluster() as cluster:
        for number in range(rounds):
            topic = session.unique("catch-up")
            cluster.create_topic(topic, _PARTITIONS, Durability.DURABLE)
            session.display.step(f"round {number + 1} of {rounds}: writing while a node is away")
            _go_away(cluster, topic)
            session.run_load(cluster, load, topic)
            session.display.step(f"round {number + 1} of {rounds}: the node is back")
            _return_after_absence(cluster, topic, measured)
            session.display.step(f"round {number + 1} of {rounds}: the node is back without its data")
            _return_empty(cluster, topic, measured)
            session.display.step(f"round {number + 1} of {rounds}: its replicas move to a new node")
            _move(cluster, topic, measured)
            cluster.delete_topic(topic)
    for name, values in measured.mb_per_second.items():
        session.record_figure(NAME, name, "MB/s", values)
    session.record_figure(NAME, CATCH_UP_READY, "s", measured.ready)
    session.record_figure(NAME, CATCH_UP_IN_SYNC, "s", measured.in_sync)


def _go_away(cluster: Cluster, topic: str) -> None:
    """Returns when others lead what the node led: a client that asks too early waits longer than it must."""
    cluster.kill(_AWAY)
    for number in cluster.nodes:
        cluster.wait(
            number,
            lambda state: all(each.leader in cluster.nodes for each in state.partitions()),
            "other leaders",
            [topic],
        )


def _return_after_absence(cluster: Cluster, topic: str, measured: _Measured) -> None:
    ready, in_sync = _catch_up(cluster, topic, measured, CATCH_UP_AWAY)
    measured.ready.append(ready)
    measured.in_sync.append(in_sync)


def _return_empty(cluster: Cluster, topic: str, measured: _Measured) -> None:
    cluster.kill(_AWAY)
    cluster.lose_disk(_AWAY)
    _catch_up(cluster, topic, measured, CATCH_UP_EMPTY)


def _catch_up(cluster: Cluster, topic: str, measured: _Measured, name: str) -> tuple[float, float]:
    """Seconds from the start of the node to when it was ready, and to when it was in sync."""
    node = cluster.launch(_AWAY)
    ready = node.wait_ready()
    looked_at = time.perf_counter() - node.spawned_at
    had = _stored_megabytes(cluster, _AWAY, topic)
    in_sync = cluster.wait_in_sync(topic) - node.spawned_at
    copied = _stored_megabytes(cluster, _AWAY, topic) - had
    measured.mb_per_second[name].append(copied / (in_sync - looked_at))
    return ready, in_sync


def _stored_megabytes(cluster: Cluster, number: int, topic: str) -> float:
    logs = cluster.nodes[number].data.glob(f"topics/{topic}/*/*.log")
    return sum(path.stat().st_size for path in logs) / 1e6


def _move(cluster: Cluster, topic: str, measured: _Measured) -> None:
    if _NEW not in cluster.nodes:
        cluster.launch(_NEW).wait_ready()
    state = cluster.look(1, [topic])
    targets = {
        index: tuple(_NEW if each == _AWAY else each for each in partition.replicas)
        for index, partition in state.topics[topic].items()
    }
    began = time.perf_counter()
    _reassign(cluster.address(1), topic, targets)

    def has_moved(state: ClusterState) -> bool:
        partitions = state.topics.get(topic, {})
        return len(partitions) == _PARTITIONS and all(
            each.is_whole and _AWAY not in each.replicas for each in partitions.values()
        )

    done = cluster.wait(1, has_moved, f"all of {topic} moved", [topic])
    measured.mb_per_second[REASSIGNMENT].append(_stored_megabytes(cluster, _NEW, topic) / (done - began))


def _reassign(address: str, topic: str, targets: dict[int, tuple[int, ...]]) -> None:
    """AlterPartitionReassignments, version 0; lengths are below 127, so that each is one byte."""
    partitions = b"".join(
        struct.pack(f">iB{len(replicas)}ix", index, len(replicas) + 1, *replicas)
        for index, replicas in targets.items()
    )
    body = struct.pack(">iB", 60_000, 2) + bytes([len(topic) + 1]) + topic.encode()
    body += bytes([len(targets) + 1]) + partitions + b"\0\0"
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        # The header's tags come before the body, in the request and in the reply.
        answer = call(connection, _ALTER_REASSIGNMENTS, 0, b"\0" + body)[1:]
    (code,) = struct.unpack_from(">h", answer, 4)
    if code:
        raise PeerError(f"the reassignment was refused with error code {code}")
