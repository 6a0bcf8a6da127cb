"""A queue of 12 partitions on three nodes, filled while a group has all of its queues open. Every message is synced."""

from bench.driver.run import DriverError
from bench.loads import ProduceLoad
from bench.peers import Durability, PeerError
from bench.peers.cluster import Cluster
from bench.scenarios.cluster_names import QUEUE_LEADERS_MOVED, queue_filled_name
from bench.session import Session
from millstream.client import QueueAdmin, QueueConsumer

NAME = "queue-cluster"
_GROUP = "workers"
_PARTITIONS = 12
# Three times as much is written.
_RUN_BYTES = 400_000_000


def run(session: Session) -> None:
    rates: dict[str, list[float]] = {"1": [], "all": []}
    moved: list[float] = []
    rounds = session.plan.rounds_of(full=5, quick=2)
    with session.cluster() as cluster:
        session.warm_up(cluster)
        for number in range(1, rounds + 1):
            for acks, values in rates.items():
                session.display.step(f"acks={acks}, round {number} of {rounds}")
                _fill(session, cluster, acks, values, moved)
    for acks, values in rates.items():
        if values:
            session.record_figure(NAME, queue_filled_name(acks), "/s", values)
    session.record_figure(NAME, QUEUE_LEADERS_MOVED, "partitions", moved)


def _fill(session: Session, cluster: Cluster, acks: str, values: list[float], moved: list[float]) -> None:
    topic = session.unique("queue")
    cluster.create_topic(topic, _PARTITIONS, Durability.DURABLE)
    _open(cluster, topic)
    before = _leaders(cluster, topic)
    load = ProduceLoad(_PARTITIONS, 100, session.plan.run_seconds, acks=acks, max_bytes=_RUN_BYTES)
    refused: DriverError | None = None
    try:
        values.append(session.run_load(cluster, load, topic).messages_per_second)
    except DriverError as error:
        refused = error
    after = _leaders(cluster, topic)
    moved.append(sum(was != now for was, now in zip(before, after, strict=True)))
    if refused is not None and not moved[-1]:
        raise refused
    # Where leaders moved the producer, which is not idempotent, may have stored messages twice: no figure, no fault.
    cluster.delete_topic(topic)


def _open(cluster: Cluster, topic: str) -> None:
    """Each partition's leader has the group's queue loaded."""
    with QueueConsumer(topic, _GROUP, cluster.bootstrap) as queue, QueueAdmin(cluster.bootstrap) as admin:
        if queue.receive(timeout=5):
            raise PeerError(f"topic {topic} was not empty")
        opened = len(admin.queues(_GROUP, topic))
    if opened != _PARTITIONS:
        raise PeerError(f"{opened} of {_PARTITIONS} queues are open")


def _leaders(cluster: Cluster, topic: str) -> list[int]:
    partitions = cluster.look(min(cluster.nodes), [topic]).topics[topic]
    return [partitions[index].leader for index in range(_PARTITIONS)]
