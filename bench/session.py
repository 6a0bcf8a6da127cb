"""One run of the harness: what the user asked for, the peers while they run, and the report as it grows."""

import itertools
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.display import Display
from bench.driver.run import Driver, DriverError
from bench.loads import Load, ProduceLoad
from bench.memory import touch_free_memory
from bench.model import FigureCell, LoadCell, Peer, Report, Sample, Skipped
from bench.peers import Durability, RunningPeer, UnsupportedError
from bench.peers.cluster import Cluster
from bench.peers.millstream import SOURCE, Millstream
from bench.peers.mock import MockCluster

_WARM_UP = ProduceLoad(partitions=4, size=1_000, seconds=0.3)


@dataclass(frozen=True, slots=True)
class Plan:
    quick: bool
    peers: frozenset[Peer]
    rounds: int | None = None
    seconds: float | None = None
    systems: tuple[str, ...] = ()
    """How the names of those begin that are measured; all of them where there is none."""
    depth: int | None = None

    def includes(self, system: str) -> bool:
        return not self.systems or any(system.startswith(each) for each in self.systems)

    def rounds_of(self, full: int, quick: int) -> int:
        return self.rounds or (quick if self.quick else full)

    @property
    def run_seconds(self) -> float:
        return self.seconds or (1.0 if self.quick else 1.5)


@dataclass(frozen=True, slots=True)
class Contender:
    """A load on a peer; contenders that are compared take turns."""

    name: str
    peer: RunningPeer
    load: Load
    durability: Durability = Durability.RELAXED


class Session:
    def __init__(
        self, plan: Plan, driver: Driver, work_directory: Path, report: Report, display: Display
    ) -> None:
        self.plan = plan
        self.driver = driver
        self.report = report
        self.display = display
        self._work_directory = work_directory
        self._numbers = itertools.count(1)

    def unique(self, prefix: str) -> str:
        return f"{prefix}-{next(self._numbers)}"

    @contextmanager
    def data_directory(self) -> Iterator[Path]:
        directory = self._work_directory / self.unique("data")
        directory.mkdir()
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    @contextmanager
    def millstream(
        self, settings: Mapping[str, str] | None = None, source: Path = SOURCE
    ) -> Iterator[Millstream]:
        with self.data_directory() as directory:
            broker = Millstream(directory, settings=settings, source=source)
            try:
                broker.wait_ready()
                yield broker
            finally:
                broker.stop()

    @contextmanager
    def cluster(self) -> Iterator[Cluster]:
        """Three nodes that serve; whatever runs of it at the end is killed."""
        with self.data_directory() as directory:
            cluster = Cluster(directory)
            try:
                cluster.start()
                yield cluster
            finally:
                cluster.stop()

    @contextmanager
    def mock_cluster(self) -> Iterator[MockCluster]:
        cluster = MockCluster(self.driver.command)
        try:
            yield cluster
        finally:
            cluster.stop()

    @contextmanager
    def peers(self) -> Iterator[list[RunningPeer]]:
        """The peers this run is about, warm, the reference first."""
        with ExitStack() as running:
            peers: list[RunningPeer] = []
            if Peer.MOCK in self.plan.peers:
                peers.append(running.enter_context(self.mock_cluster()))
            if Peer.MILLSTREAM in self.plan.peers:
                peers.append(running.enter_context(self.millstream()))
            for peer in peers:
                self.warm_up(peer)
            yield peers

    def run_load(self, peer: RunningPeer, load: Load, topic: str) -> Sample:
        before = peer.usage()
        result = self.driver.run(load, peer.bootstrap, topic)
        after = peer.usage()
        return Sample(result, after.cpu_seconds - before.cpu_seconds, after.rss_bytes)

    def warm_up(self, peer: RunningPeer) -> None:
        """What a process does once, such as loading code on the first request, is not part of any round."""
        topic = self.unique("warm")
        peer.create_topic(topic, _WARM_UP.partitions, Durability.RELAXED)
        self.run_load(peer, _WARM_UP, topic)
        peer.delete_topic(topic)

    def interleave(self, scenario: str, contenders: Sequence[Contender], rounds: int) -> None:
        """Rounds in turn, each on a topic of its own that is deleted afterwards."""
        remaining = {contender: list[Sample]() for contender in contenders}
        for number in range(1, rounds + 1):
            for contender, samples in list(remaining.items()):
                what = f"{contender.name}, {contender.peer.kind.value}"
                self.display.step(f"{what}, round {number} of {rounds}")
                try:
                    samples.append(self.run_on_new_topic(contender))
                except UnsupportedError as reason:
                    self.skip(scenario, what, str(reason))
                    del remaining[contender]
                except DriverError as failure:
                    self.skip(scenario, what, str(failure), failed=True)
                    del remaining[contender]
        for contender, samples in remaining.items():
            self.record(scenario, contender.name, contender.peer.kind, samples)

    def run_on_new_topic(self, contender: Contender) -> Sample:
        topic = self.unique("bench")
        contender.peer.create_topic(topic, contender.load.partitions, contender.durability)
        try:
            if not self.plan.quick:
                touch_free_memory()
            return self.run_load(contender.peer, contender.load, topic)
        finally:
            contender.peer.delete_topic(topic)

    def record(self, scenario: str, name: str, peer: Peer, samples: Sequence[Sample]) -> None:
        self.report.loads.append(LoadCell(scenario, name, peer, tuple(samples)))

    def record_figure(self, scenario: str, name: str, unit: str, values: Sequence[float]) -> None:
        self.report.figures.append(FigureCell(scenario, name, unit, tuple(values)))

    def skip(self, scenario: str, name: str, reason: str, *, failed: bool = False) -> None:
        self.report.skipped.append(Skipped(scenario, name, reason, failed))
