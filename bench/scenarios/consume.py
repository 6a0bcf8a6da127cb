"""Consume throughput and what it costs, from a topic in the page cache; and next to the mock cluster.

The mock cluster keeps 5 MiB a partition, so the comparison reads 4 MiB a partition several times over.
"""

from bench.loads import ConsumeLoad, ProduceLoad
from bench.model import Peer, Sample
from bench.peers import Durability, RunningPeer, UnsupportedError
from bench.scenarios.names import SIZES, consume_name
from bench.session import Session

NAME = "consume"
REFERENCE_CELL = "consume 1 KB, 12 partitions of 4 MB, 8 passes"
_FULL_BYTES, _QUICK_BYTES = 500_000_000, 200_000_000
_LOAD_SECONDS = 60.0
_REFERENCE_PARTITIONS = 12
_REFERENCE_BYTES = _REFERENCE_PARTITIONS * 4_000_000


def run(session: Session) -> None:
    with session.peers() as peers:
        for peer in peers:
            if peer.kind is Peer.MILLSTREAM:
                _run_alone(session, peer)
        _run_compared(session, peers)


def _run_alone(session: Session, broker: RunningPeer) -> None:
    size_bytes = _QUICK_BYTES if session.plan.quick else _FULL_BYTES
    for size in (1_000,) if session.plan.quick else SIZES:
        for partitions in (1, 12):
            name = consume_name(size, partitions)
            topic = _filled_topic(session, broker, name, size, partitions, size_bytes)
            samples: list[Sample] = []
            for number in range(session.plan.rounds_of(full=4, quick=2)):
                session.display.step(f"{name}, round {number + 1}")
                samples.append(session.run_load(broker, ConsumeLoad(partitions, passes=2), topic))
            session.record(NAME, name, broker.kind, samples)
            broker.delete_topic(topic)


def _run_compared(session: Session, peers: list[RunningPeer]) -> None:
    topics: dict[int, str] = {}
    for index, peer in enumerate(peers):
        try:
            topics[index] = _filled_topic(
                session, peer, REFERENCE_CELL, 1_000, _REFERENCE_PARTITIONS, _REFERENCE_BYTES
            )
        except UnsupportedError as reason:
            session.skip(NAME, f"{REFERENCE_CELL}, {peer.kind.value}", str(reason))
    samples: dict[int, list[Sample]] = {index: [] for index in topics}
    for number in range(session.plan.rounds_of(full=5, quick=2)):
        for index, topic in topics.items():
            session.display.step(f"{REFERENCE_CELL}, {peers[index].kind.value}, round {number + 1}")
            load = ConsumeLoad(_REFERENCE_PARTITIONS, passes=8)
            samples[index].append(session.run_load(peers[index], load, topic))
    for index, of_peer in samples.items():
        session.record(NAME, REFERENCE_CELL, peers[index].kind, of_peer)


def _filled_topic(
    session: Session, peer: RunningPeer, name: str, size: int, partitions: int, size_bytes: int
) -> str:
    session.display.step(f"{name}, {peer.kind.value}: filling the topic")
    topic = session.unique("bench")
    peer.create_topic(topic, partitions, Durability.RELAXED)
    fill = ProduceLoad(partitions, size, _LOAD_SECONDS, max_bytes=size_bytes)
    session.run_load(peer, fill, topic)
    return topic
