"""By load: each partition goes to the brokers that have least, its leader to the one that leads least."""

from collections.abc import Sequence

from msgspec.structs import replace

from millstream.cluster.placement.candidate import Candidate, Replicas, Wanted, spread_over_racks


class Balanced:
    needs_load = True

    def place(self, candidates: Sequence[Candidate], wanted: Wanted) -> list[Replicas]:
        load = {each.broker_id: each for each in candidates}
        placed: list[Replicas] = []
        for _ in range(wanted.count):
            by_leaders = min(load.values(), key=lambda each: (each.leaders, each.replicas, each.broker_id))
            others = sorted(
                (each for each in load.values() if each is not by_leaders),
                key=lambda each: (each.replicas, each.leaders, each.broker_id),
            )
            chosen = spread_over_racks([by_leaders, *others], wanted.replication_factor)
            placed.append(chosen)
            for place, broker in enumerate(chosen):
                each = load[broker]
                load[broker] = replace(each, leaders=each.leaders + (place == 0), replicas=each.replicas + 1)
        return placed
