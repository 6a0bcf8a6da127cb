"""In turn around the brokers. Even, and nearly everything moves when their number changes."""

from collections.abc import Sequence

from millstream.cluster.placement.candidate import Candidate, Replicas, Wanted, spread_over_racks


class Modulo:
    needs_load = False

    def place(self, candidates: Sequence[Candidate], wanted: Wanted) -> list[Replicas]:
        ordered = sorted(candidates, key=lambda each: each.broker_id)
        size = len(ordered)
        starts = [(wanted.ordinal + number) % size for number in range(wanted.count)]
        return [
            spread_over_racks(ordered[start:] + ordered[:start], wanted.replication_factor)
            for start in starts
        ]
