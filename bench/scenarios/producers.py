"""64 producers that wait for the disk against 64 that do not: what group commit costs."""

from bench.loads import ProduceLoad
from bench.peers import Durability
from bench.scenarios.names import producers_name
from bench.session import Contender, Session

NAME = "producers"
_PRODUCERS = 64
_PARTITIONS = 12


def run(session: Session) -> None:
    with session.millstream() as broker:
        session.warm_up(broker)
        for size in (1_000,) if session.plan.quick else (100, 1_000):
            load = ProduceLoad(_PARTITIONS, size, session.plan.run_seconds, producers=_PRODUCERS)
            contenders = [
                Contender(producers_name(size, durability.value), broker, load, durability)
                for durability in (Durability.RELAXED, Durability.DURABLE)
            ]
            session.interleave(NAME, contenders, session.plan.rounds_of(full=5, quick=2))
