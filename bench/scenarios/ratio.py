"""Produce throughput next to the mock cluster's, one librdkafka client, 4 partitions, flush relaxed.

Twice: with messages the client does not copy, where the client is the least limit, and with messages it
copies, as it does for most applications.
"""

from bench.loads import ProduceLoad
from bench.scenarios.names import SIZES, ratio_name
from bench.session import Contender, Session

NAME = "ratio"
_PARTITIONS = 4


def run(session: Session) -> None:
    sizes = SIZES[:2] if session.plan.quick else SIZES
    with session.peers() as peers:
        for size in sizes:
            for copied in (False, True):
                load = ProduceLoad(_PARTITIONS, size, session.plan.run_seconds, copy=copied)
                contenders = [Contender(ratio_name(size, copied=copied), peer, load) for peer in peers]
                session.interleave(NAME, contenders, session.plan.rounds_of(full=7, quick=2))
