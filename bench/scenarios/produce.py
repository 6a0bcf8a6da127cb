"""Produce throughput and what it costs: every size, number of partitions, acks level and durability."""

from collections.abc import Iterator
from dataclasses import dataclass

from bench.loads import ProduceLoad
from bench.model import Peer
from bench.peers import Durability
from bench.scenarios.names import SIZES, produce_name
from bench.session import Contender, Session

NAME = "produce"


@dataclass(frozen=True, slots=True)
class _Cell:
    size: int
    partitions: int
    acks: str
    durability: Durability


def run(session: Session) -> None:
    rounds = session.plan.rounds_of(full=3, quick=1)
    with session.peers() as peers:
        for cell in _cells(session.plan.quick):
            load = ProduceLoad(cell.partitions, cell.size, session.plan.run_seconds, acks=cell.acks)
            name = produce_name(cell.size, cell.partitions, cell.acks, cell.durability.value)
            # The mock cluster has no disk: it takes part where the broker does not wait for its disk either.
            contenders = [
                Contender(name, peer, load, cell.durability)
                for peer in peers
                if peer.kind is Peer.MILLSTREAM or cell.durability is Durability.RELAXED
            ]
            session.interleave(NAME, contenders, rounds)


def _cells(quick: bool) -> Iterator[_Cell]:
    for size in SIZES[:2] if quick else SIZES:
        for partitions in (12,) if quick else (1, 12):
            for acks in ("all",) if quick else ("1", "all"):
                for durability in (Durability.RELAXED, Durability.DURABLE):
                    yield _Cell(size, partitions, acks, durability)
