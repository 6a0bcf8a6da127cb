"""Queues beside Apache Kafka's share groups, RabbitMQ's quorum queues and NATS JetStream, on one node each.

Enqueue; deliver and acknowledge one by one and in batches, by 1, 8 and 64 consumers. "Deep": a million messages wait
when the consumers come (`--depth` for another number). They are not drained: each figure ends after the same seconds
for every system (`--seconds`), or when a quarter of the depth is settled; so a slow system takes no longer, and the
queue stays deep. "Depth 0": the consumers wait, and messages come in waves of 2,000, each when the one before is
settled, for as many seconds. What a peer cannot do is left out with a reason.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers import PeerError, UnsupportedError
from bench.queues import Drain, QueuePeer
from bench.queues.nats import NatsQueues
from bench.queues.rabbitmq import RabbitQueues
from bench.queues.share_peers import KafkaQueues, MillstreamQueues
from bench.scenarios.names import queue_delivered, queue_enqueued
from bench.session import Session

NAME = "queues"
_WAVE = 2_000
_SECONDS = 8.0
_CONSUMERS = (1, 8, 64)
_PEERS: dict[str, Callable[[Path], QueuePeer]] = {
    "Apache Kafka": lambda directory: KafkaQueues(directory, synced=True),
    "Apache Kafka, not synced": lambda directory: KafkaQueues(directory, synced=False),
    "RabbitMQ": RabbitQueues,
    "NATS": NatsQueues,
}


def run(session: Session) -> None:
    """One after the other, so that no peer's idle threads take another's time."""
    for what, unit, bound in (
        ("messages in a deep queue", "messages", _depth(session)),
        ("a figure ends when so many are settled", "messages", _most_settled(session)),
        ("or after", "s", _seconds(session)),
    ):
        session.record_figure(NAME, f"queue: {what}", unit, [bound])
    if session.plan.includes(MillstreamQueues.name):
        with session.millstream() as broker:
            _measure(session, MillstreamQueues(broker))
    for name, start in _PEERS.items():
        if not session.plan.includes(name):
            continue
        try:
            with _running(session, start) as peer:
                _measure(session, peer)
        except (UnsupportedError, PeerError) as reason:
            session.skip(NAME, name, str(reason), failed=isinstance(reason, PeerError))


@contextmanager
def _running(session: Session, start: Callable[[Path], QueuePeer]) -> Iterator[QueuePeer]:
    with session.data_directory() as directory:
        peer = start(directory)
        try:
            yield peer
        finally:
            peer.stop()


def _depth(session: Session) -> int:
    return session.plan.depth or (200_000 if session.plan.quick else 1_000_000)


def _seconds(session: Session) -> float:
    return session.plan.seconds or _SECONDS


def _most_settled(session: Session) -> int:
    """Of a deep queue: it stays deep."""
    return max(_depth(session) // 4, 1)


def _measure(session: Session, peer: QueuePeer) -> None:
    depth, seconds = _depth(session), _seconds(session)
    session.display.step(f"{peer.name}: enqueue")
    _drain(peer, session.unique("warm"), 4_000, 8, seconds, one_by_one=True)
    queue = session.unique("deep")
    peer.create(queue)
    session.record_figure(NAME, queue_enqueued(peer.name), "/s", [depth / peer.enqueue(queue, depth)])
    for one_by_one in (True, False):
        for consumers in (8,) if session.plan.quick else _CONSUMERS:
            try:
                session.display.step(f"{peer.name}: {consumers} consumers")
                _measure_consumers(session, peer, queue, consumers, one_by_one=one_by_one)
            except (UnsupportedError, PeerError) as reason:
                what = queue_delivered(peer.name, consumers, one_by_one=one_by_one)
                session.skip(NAME, what, str(reason), failed=isinstance(reason, PeerError))


def _measure_consumers(
    session: Session, peer: QueuePeer, deep: str, consumers: int, *, one_by_one: bool
) -> None:
    seconds = _seconds(session)
    what = queue_delivered(peer.name, consumers, one_by_one=one_by_one)
    drain = Drain(peer.consumers(deep, consumers, one_by_one=one_by_one))
    began, before = time.perf_counter(), peer.usage().cpu_seconds
    done = drain.until(_most_settled(session), seconds)
    took, cpu = time.perf_counter() - began, peer.usage().cpu_seconds - before
    drain.close()
    if peer.deletes_settled:
        # As deep for the next.
        peer.enqueue(deep, done)
    session.record_figure(NAME, f"{what}, deep", "/s", [done / took])
    session.record_figure(NAME, f"{what}, deep: CPU", "us", [cpu / done * 1e6])
    session.record_figure(NAME, f"{what}, deep: settled", "messages", [done])
    count = 25_000 if one_by_one else 50_000
    rate = _drain(peer, session.unique("flat"), count, consumers, seconds, one_by_one=one_by_one)
    session.record_figure(NAME, f"{what}, depth 0", "/s", [rate])


def _drain(
    peer: QueuePeer, queue: str, count: int, consumers: int, seconds: float, *, one_by_one: bool
) -> float:
    """Messages a second, in waves; the last one begins within these seconds."""
    peer.create(queue)
    # Something must be there for a group to begin with.
    peer.enqueue(queue, _WAVE)
    drain = Drain(peer.consumers(queue, consumers, one_by_one=one_by_one))
    drain.until(_WAVE)
    began = time.perf_counter()
    done, took = 0, 0.0
    while done < count and took < seconds:
        peer.enqueue(queue, _WAVE)
        drain.until(done + 2 * _WAVE)
        done, took = done + _WAVE, time.perf_counter() - began
    drain.close()
    return done / took
