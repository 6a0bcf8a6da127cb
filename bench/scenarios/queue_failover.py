"""A queue whose leaders are killed under load: how long deliveries pause, and whether what was settled stays settled.

Each of three nodes leads one partition of the topic. What workers saw is judged by
the rules of queues in `millstream.testing.history`.
"""

import itertools
import math
import threading
import time

from bench.acked_writer import AckedWriter
from bench.peers import Durability, PeerError
from bench.peers.cluster import Cluster
from bench.scenarios.cluster_names import QUEUE_FAILOVER_ANOMALIES, queue_failover_name
from bench.scenarios.failover import bring_back
from bench.session import Session
from millstream.client import ClientError, QueueAdmin, QueueConsumer
from millstream.testing.history.queues import QueueEvent, QueueStep, judge_queue

NAME = "queue-failover"
_TOPIC, _GROUP = "queue-failover", "workers"
_NODES = (1, 2, 3)
_WORKERS = 4
_RATE = 150.0
_PATIENCE_SECONDS = 120.0


class _Worker(threading.Thread):
    def __init__(self, bootstrap: str, events: list[QueueEvent], over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
        self._events = events
        self._over = over
        self.accepted: list[list[float]] = [[] for _ in _NODES]

    def run(self) -> None:
        with QueueConsumer(_TOPIC, _GROUP, self._servers) as queue:
            while not self._over.is_set():
                asked = time.perf_counter()
                try:
                    messages = queue.receive(20, 1.0)
                except ClientError:
                    continue
                values = [(message.value or b"").decode() for message in messages]
                self._note(values, QueueStep.DELIVERED, asked)
                try:
                    # What was not stored of several is told by the error, and nothing of it counts here.
                    queue.accept(*messages)
                except ClientError:
                    self._note(values, QueueStep.TRIED, time.perf_counter())
                    continue
                self._note(values, QueueStep.ACKED, time.perf_counter())
                for message in messages:
                    self.accepted[message.partition].append(time.perf_counter())

    def _note(self, values: list[str], step: QueueStep, at: float) -> None:
        self._events += [QueueEvent(_TOPIC, value, step, at) for value in values]


def run(session: Session) -> None:
    kills = session.plan.rounds_of(full=30, quick=3)
    events: list[QueueEvent] = []
    over = threading.Event()
    gaps: list[float] = []
    with session.cluster() as cluster:
        cluster.create_topic(_TOPIC, len(_NODES), Durability.DURABLE)
        workers = [_Worker(cluster.bootstrap, events, over) for _ in range(_WORKERS)]
        for worker in workers:
            worker.start()
        with AckedWriter(cluster.bootstrap, _TOPIC, len(_NODES), _RATE) as writer:
            _await_deliveries(workers)
            for number, victim in zip(range(kills), itertools.cycle(_NODES), strict=False):
                session.display.step(f"kill {number + 1} of {kills}")
                gaps.append(_kill(cluster, workers, victim))
                bring_back(cluster, writer, victim, _TOPIC)
        _drain(cluster)
        over.set()
        for worker in workers:
            worker.join(_PATIENCE_SECONDS)
    if writer.errors:
        raise PeerError(f"{len(writer.errors)} messages failed: {writer.errors[0]}")
    events += [
        QueueEvent(_TOPIC, str(each.number), QueueStep.PUT, each.at)
        for partition in writer.acknowledged
        for each in partition
    ]
    anomalies = list(judge_queue(events, is_drained=True))
    gaps.sort()
    for percentile, share in (("p50", 0.5), ("p99", 0.99)):
        value = gaps[math.ceil(share * len(gaps)) - 1]
        session.record_figure(NAME, queue_failover_name(percentile), "s", [value])
    session.record_figure(NAME, QUEUE_FAILOVER_ANOMALIES, "messages", [len(anomalies)])


def _kill(cluster: Cluster, workers: list[_Worker], victim: int) -> float:
    """Seconds from the kill of a partition's leader to the next message of it that is settled."""
    at = time.perf_counter()
    cluster.kill(victim)
    killed = time.perf_counter()
    while not (
        found := [each for worker in workers for each in worker.accepted[victim - 1][-50:] if each > killed]
    ):
        if time.perf_counter() - at > _PATIENCE_SECONDS:
            raise PeerError(f"no message of partition {victim - 1} was settled after its leader was killed")
        time.sleep(0.005)
    return min(found) - at


def _await_deliveries(workers: list[_Worker]) -> None:
    began = time.perf_counter()
    while not all(any(worker.accepted[index] for worker in workers) for index in range(len(_NODES))):
        if time.perf_counter() - began > _PATIENCE_SECONDS:
            raise PeerError("no messages were delivered")
        time.sleep(0.05)


def _drain(cluster: Cluster) -> None:
    began = time.perf_counter()
    with QueueAdmin(cluster.bootstrap) as admin:
        while True:
            rows = admin.queues(_GROUP, _TOPIC)
            if len(rows) == len(_NODES) and not any(row.depth for row in rows):
                return
            if time.perf_counter() - began > _PATIENCE_SECONDS:
                raise PeerError(f"messages are left: {[row.depth for row in rows]}")
            time.sleep(0.2)
