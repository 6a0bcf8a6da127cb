"""One chaos run: a local cluster, clients, a nemesis, a final read of everything, a verdict."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

from millstream.testing.chaos.clients import (
    ChaosConsumer,
    ChaosProducer,
    GroupConsumer,
    Recorder,
    create_topic,
)
from millstream.testing.chaos.nemesis import FAULTS, ChaosNemesis, FaultSpan
from millstream.testing.chaos.processes import ChaosCluster
from millstream.testing.chaos.topic_changes import TopicChanger, unsettled
from millstream.testing.chaos.wires import NoNamespaces, Wires
from millstream.testing.history import Anomaly, History, judge

TOPIC = "chaos"
_FINAL_SECONDS = 90.0
_JOIN_SECONDS = 60.0
# For all partitions, after the last fault.
_SETTLING_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ChaosPlan:
    seconds: float = 60.0
    nodes: int = 3
    replicas: int = 3
    partitions: int = 3
    rate: float = 100.0
    """Messages a second for each producer; there is one producer a partition."""
    fault_seconds: float = 4.0
    seed: int = 0
    uses_network: bool = True
    routing: str = "direct"
    """Whether clients connect to leaders, or to any node."""
    faults: tuple[str, ...] = FAULTS
    has_all_faults: bool = False
    """Each of them occurs, however long that takes."""
    changes_topics: bool = True
    """Other topics are created, grown, moved and deleted meanwhile."""


@dataclass(slots=True)
class ChaosResult:
    plan: ChaosPlan
    history: History
    acknowledged: list[tuple[float, float]]
    """The moment, and the duration."""
    spans: list[FaultSpan]
    anomalies: list[Anomaly]
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    topic_changes: int = 0
    unsettled: list[str] = field(default_factory=list)
    """Partitions that did not recover: without a leader, out of sync, or still moving."""

    @property
    def longest_gap(self) -> float:
        """Between acknowledgements, over all producers."""
        times = sorted(at for at, _ in self.acknowledged)
        return max((later - earlier for earlier, later in pairwise(times)), default=0.0)

    @property
    def is_passed(self) -> bool:
        return not self.anomalies and not self.unsettled and bool(self.acknowledged)

    @property
    def why_failed(self) -> str:
        if self.anomalies:
            return f"{len(self.anomalies)} anomalies"
        return f"not settled: {self.unsettled[0]}" if self.unsettled else "nothing was acknowledged"


def run_chaos(plan: ChaosPlan, directory: Path, say: Callable[[str], None]) -> ChaosResult:
    recorder = Recorder()
    with _wires(plan, recorder, say) as wires:
        cluster = ChaosCluster(directory, plan.nodes, wires, plan.routing)
        try:
            say(f"starting {plan.nodes} nodes")
            cluster.start()
            create_topic(cluster.bootstrap, TOPIC, plan.partitions, plan.replicas)
            random = Random(plan.seed)  # noqa: S311
            nemesis = ChaosNemesis(cluster, random, recorder, plan.fault_seconds, plan.faults)
            say(f"working for {plan.seconds:.0f} s")
            changer = TopicChanger(cluster.bootstrap, plan.nodes, Random(f"topics of {plan.seed}"), recorder)  # noqa: S311
            _work(plan, cluster, nemesis, changer, recorder)
            left = unsettled(cluster.nodes[1].address, _SETTLING_SECONDS)
            say("reading everything")
            _read_everything(plan, cluster, recorder)
        finally:
            cluster.close()
    say("judging")
    return ChaosResult(
        plan,
        recorder.history,
        recorder.acknowledged,
        nemesis.spans,
        judge(recorder.history),
        recorder.notes,
        recorder.now(),
        changer.count,
        left,
    )


@contextmanager
def _wires(plan: ChaosPlan, recorder: Recorder, say: Callable[[str], None]) -> Iterator[Wires | None]:
    wires = Wires(range(1, plan.nodes + 1)) if plan.uses_network else None
    if wires is not None:
        try:
            wires.open()
        except NoNamespaces as error:
            say(f"without network faults: {error}")
            recorder.note(f"without network faults: {error}")
            wires = None
    try:
        yield wires
    finally:
        if wires is not None:
            wires.close()


def _work(
    plan: ChaosPlan, cluster: ChaosCluster, nemesis: ChaosNemesis, changer: TopicChanger, recorder: Recorder
) -> None:
    is_over = threading.Event()
    workers: list[Callable[[threading.Event], None]] = []
    for partition in range(plan.partitions):
        address = cluster.bootstrap, TOPIC, partition
        workers.append(ChaosProducer(f"producer-{partition}", *address, plan.rate, recorder).run)
        workers.append(ChaosConsumer(f"consumer-{partition}", *address, recorder).run)
    workers += [
        GroupConsumer(f"member-{number}", cluster.bootstrap, TOPIC, recorder).run for number in (1, 2)
    ]
    if plan.changes_topics:
        workers.append(changer.run)
    threads = [threading.Thread(target=work, args=(is_over,), daemon=True) for work in workers]
    for thread in threads:
        thread.start()
    try:
        time.sleep(min(2.0, plan.seconds / 10))
        nemesis.run(plan.seconds, nemesis.kinds if plan.has_all_faults else 0)
        time.sleep(min(5.0, plan.seconds / 5))
    finally:
        is_over.set()
        for thread in threads:
            thread.join(_JOIN_SECONDS)


def _read_everything(plan: ChaosPlan, cluster: ChaosCluster, recorder: Recorder) -> None:
    for partition in range(plan.partitions):
        last = ChaosConsumer(
            f"last-{partition}", cluster.bootstrap, TOPIC, partition, recorder, is_final=True
        )
        if not last.read_to_end(_FINAL_SECONDS):
            recorder.note(f"partition {partition} could not be read to its end")
        # Judged in any case: what could not be read counts as missing.
        recorder.history.final_keys.add(f"{TOPIC}-{partition}")
