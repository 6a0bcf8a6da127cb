"""Latency from the planned time of sending to the delivery report, at a fixed rate and without linger."""

from bench.loads import ProduceLoad
from bench.model import Peer
from bench.peers import Durability
from bench.scenarios.names import latency_name
from bench.session import Contender, Session

NAME = "latency"
_RATE = 1_000.0
_PARTITIONS = 4


def run(session: Session) -> None:
    seconds = 2.0 if session.plan.quick else 5.0
    load = ProduceLoad(_PARTITIONS, 100, seconds, acks="1", linger_ms=0, rate=_RATE)
    with session.peers() as peers:
        contenders = [
            Contender(latency_name(durability.value), peer, load, durability)
            for durability in (Durability.RELAXED, Durability.DURABLE)
            for peer in peers
            if peer.kind is Peer.MILLSTREAM or durability is Durability.RELAXED
        ]
        session.interleave(NAME, contenders, session.plan.rounds_of(full=3, quick=1))
