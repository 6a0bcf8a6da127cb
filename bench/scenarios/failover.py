"""How long writes pause when the node that leads a partition is killed, and whether anything is lost.

Each node leads one partition. They are killed in turn; each is started again, is in sync and leads its partition
again before the next. What is counted is the partition that the killed node led, as one librdkafka producer sees it.
"""

import contextlib
import itertools
import math
import time

from confluent_kafka import ElectionType, KafkaException, TopicPartition

from bench.acked_writer import AckedWriter, lost_and_twice
from bench.metadata_view import ClusterState
from bench.peers import Durability, PeerError
from bench.peers.cluster import Cluster
from bench.scenarios.cluster_names import (
    FAILOVER_BACK,
    FAILOVER_CONTROLLER,
    FAILOVER_LEADER,
    FAILOVER_LOST,
    FAILOVER_TWICE,
    failover_name,
)
from bench.session import Session

NAME = "failover"
_TOPIC = "failover"
_NODES = (1, 2, 3)
_RATE = 600.0
_SETTLED_SECONDS = 0.5
_ELECTION_SECONDS = 30.0


def run(session: Session) -> None:
    kills = session.plan.rounds_of(full=30, quick=3)
    gaps: dict[bool, list[float]] = {False: [], True: []}
    back = []
    with session.cluster() as cluster:
        cluster.create_topic(_TOPIC, len(_NODES), Durability.DURABLE)
        with AckedWriter(cluster.bootstrap, _TOPIC, len(_NODES), _RATE) as writer:
            for partition in range(len(_NODES)):
                writer.gap(partition, time.perf_counter())
            for number, victim in zip(range(kills), itertools.cycle(_NODES), strict=False):
                session.display.step(f"kill {number + 1} of {kills}")
                was_controller, gap = _kill(cluster, writer, victim)
                gaps[was_controller].append(gap)
                back.append(bring_back(cluster, writer, victim, _TOPIC))
        session.display.step("reading everything back")
        lost, twice = lost_and_twice(writer.acknowledged, writer.stored())
    if writer.errors:
        raise PeerError(f"{len(writer.errors)} messages failed: {writer.errors[0]}")
    _record(session, gaps)
    session.record_figure(NAME, FAILOVER_LOST, "messages", [lost])
    session.record_figure(NAME, FAILOVER_TWICE, "messages", [twice])
    session.record_figure(NAME, FAILOVER_BACK, "s", back)


def _kill(cluster: Cluster, writer: AckedWriter, victim: int) -> tuple[bool, float]:
    was_controller = cluster.look(victim, [_TOPIC]).controller == victim
    at = time.perf_counter()
    cluster.kill(victim)
    return was_controller, writer.gap(victim - 1, at)


def bring_back(cluster: Cluster, writer: AckedWriter, victim: int, topic: str) -> float:
    """Seconds from the start of the node to all replicas in sync; returns when it leads its partition again."""
    node = cluster.launch(victim)
    node.wait_ready()
    in_sync = cluster.wait_in_sync(topic)
    wanted = [TopicPartition(topic, index) for index in range(len(_NODES))]
    admin = cluster.admin()

    def is_led_by_first(state: ClusterState) -> bool:
        """Asked for until it is so: a replica that a busy machine held up for a moment cannot be elected then."""
        if all(each.leader == each.replicas[0] for each in state.partitions()):
            return True
        with contextlib.suppress(KafkaException):
            admin.elect_leaders(ElectionType.PREFERRED, wanted).result(_ELECTION_SECONDS)
        return False

    for number in _NODES:
        cluster.wait(number, is_led_by_first, "every partition led by its first replica", [topic])
    time.sleep(_SETTLED_SECONDS)
    for partition in range(len(_NODES)):
        writer.gap(partition, time.perf_counter())
    return in_sync - node.spawned_at


def _record(session: Session, gaps: dict[bool, list[float]]) -> None:
    everything = sorted(gaps[False] + gaps[True])
    for percentile, share in (("p50", 0.5), ("p99", 0.99)):
        value = everything[math.ceil(share * len(everything)) - 1]
        session.record_figure(NAME, failover_name(percentile), "s", [value])
    for name, values in ((FAILOVER_LEADER, gaps[False]), (FAILOVER_CONTROLLER, gaps[True])):
        if values:
            session.record_figure(NAME, name, "s", values)
