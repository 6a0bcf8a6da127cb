"""Three nodes on this machine against one: what replication costs in throughput and in latency.

The work is three times that of one node, and the client runs beside it on the same cores.
"""

from bench.loads import ProduceLoad
from bench.peers import Durability, RunningPeer
from bench.peers.cluster import Cluster
from bench.peers.millstream import Millstream
from bench.scenarios.cluster_names import (
    ONE_NODE,
    THREE_NODES,
    THROUGHPUT_SIZES,
    cluster_latency_name,
    cluster_name,
)
from bench.session import Contender, Session

NAME = "cluster"
_PARTITIONS = 12
_RATE = 1_000.0
# Three times as much is written.
_RUN_BYTES = 400_000_000


def run(session: Session) -> None:
    with session.millstream() as one, session.cluster() as three:
        for peer in (one, three):
            session.warm_up(peer)
        _throughput(session, one, three)
        _latency(session, one, three)


def _throughput(session: Session, one: Millstream, three: Cluster) -> None:
    for size in THROUGHPUT_SIZES[:1] if session.plan.quick else THROUGHPUT_SIZES:
        contenders = [
            _contender(session, ONE_NODE, one, size, "1", Durability.RELAXED),
            _contender(session, THREE_NODES, three, size, "1", Durability.RELAXED),
            _contender(session, THREE_NODES, three, size, "all", Durability.RELAXED),
            _contender(session, THREE_NODES, three, size, "all", Durability.DURABLE),
        ]
        session.interleave(NAME, contenders, session.plan.rounds_of(full=5, quick=2))


def _contender(
    session: Session, nodes: str, peer: RunningPeer, size: int, acks: str, durability: Durability
) -> Contender:
    load = ProduceLoad(_PARTITIONS, size, session.plan.run_seconds, acks=acks, max_bytes=_RUN_BYTES)
    return Contender(cluster_name(nodes, size, acks, durability.value), peer, load, durability)


def _latency(session: Session, one: Millstream, three: Cluster) -> None:
    seconds = 2.0 if session.plan.quick else 5.0
    contenders = []
    for durability in (Durability.RELAXED, Durability.DURABLE):
        for nodes, peer, acks in (
            (ONE_NODE, one, "1"),
            (THREE_NODES, three, "1"),
            (THREE_NODES, three, "all"),
        ):
            load = ProduceLoad(_PARTITIONS, 100, seconds, acks=acks, linger_ms=0, rate=_RATE)
            name = cluster_latency_name(nodes, acks, durability.value)
            contenders.append(Contender(name, peer, load, durability))
    session.interleave(NAME, contenders, session.plan.rounds_of(full=2, quick=1))
