"""The faults of a chaos run: one at a time, on processes, networks, disks and clocks."""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from millstream.testing.chaos.clients import Recorder
from millstream.testing.chaos.processes import ChaosCluster, ChaosNode
from millstream.testing.faulty_machine import Trouble
from millstream.testing.processes import NodeFailed

NETWORK_FAULTS = ("cut", "one-way-cut", "delay", "loss")
FAULTS = (
    "kill", "kill-all", "pause", "restart", *NETWORK_FAULTS,
    "full-disk", "failing-fsync", "slow-disk", "stuck-disk", "old-disk", "empty-disk", "clock",
)  # fmt: skip

# The majority of the other nodes protects the data of a node that lost some.
_OTHER_DISKS = ("old-disk", "empty-disk")
_FEWEST_NODES = 3
_DELAY_SECONDS = 0.1
_LOSS = 0.1
_SLOW_SECONDS = 0.3
_STUCK_SECONDS = 3600.0
_WEEKS_MS = 30 * 24 * 3600 * 1000
# A broker refuses messages that are an hour ahead of its clock.
_JUMPS_MS = (-3_000_000, -5_000, 5_000, 3_000_000, _WEEKS_MS)
_LOOK_SECONDS = 0.05


class NoFaults(Exception):
    """This machine can make none of the requested faults."""


@dataclass(frozen=True, slots=True)
class FaultSpan:
    """For the timeline: the fault, the nodes, its begin and end."""

    kind: str
    where: str
    start: float
    end: float


class ChaosNemesis:
    """`faults` are names from FAULTS; those that this cluster cannot have are left out."""

    def __init__(
        self,
        cluster: ChaosCluster,
        random: Random,
        recorder: Recorder,
        fault_seconds: float,
        faults: Sequence[str] = FAULTS,
    ) -> None:
        self.spans: list[FaultSpan] = []
        self._cluster = cluster
        self._random = random
        self._recorder = recorder
        self._seconds = fault_seconds
        self._kinds: list[Callable[[ChaosNode], None]] = [
            getattr(self, f"_{name.replace('-', '_')}")
            for name in faults
            if (cluster.wires is not None or name not in NETWORK_FAULTS)
            and (len(cluster.nodes) >= _FEWEST_NODES or name not in _OTHER_DISKS)
        ]
        if not self._kinds:
            raise NoFaults(
                "none of these faults can be made: those of networks need root and iproute2, other disks three nodes"
            )

    def run(self, seconds: float, at_least: int = 0) -> None:
        """Inject all kinds in turn, in the order drawn from the seed, until the time is over and `at_least` faults
        were made.
        """
        deadline = time.monotonic() + seconds
        order = self._random.sample(self._kinds, len(self._kinds))
        turn = 0
        while turn < at_least or time.monotonic() < deadline:
            order[turn % len(order)](self._random.choice(list(self._cluster.nodes.values())))
            turn += 1
            time.sleep(self._seconds * self._random.uniform(0.5, 1.0))

    def _last(self) -> None:
        time.sleep(self._seconds * self._random.uniform(0.5, 1.5))

    @contextmanager
    def _span(self, kind: str, node: ChaosNode) -> Iterator[None]:
        start = self._recorder.now()
        yield
        self.spans.append(FaultSpan(kind, f"node {node.number}", start, self._recorder.now()))

    @property
    def kinds(self) -> int:
        return len(self._kinds)

    # -- processes

    def _kill(self, node: ChaosNode) -> None:
        with self._span("kill -9", node):
            node.kill()
            self._last()
            _start(node)

    def _kill_all(self, node: ChaosNode) -> None:
        """Kill all nodes within a moment, and restart them in any order; the last to go may hold records that others
        lack.
        """
        others = [each for each in self._cluster.nodes.values() if each is not node]
        order = [node, *self._random.sample(others, len(others))]
        start = self._recorder.now()
        for each in order:
            each.kill()
            time.sleep(self._random.uniform(0.0, 0.3))
        self._last()
        for each in self._random.sample(order, len(order)):
            each.launch()
        for each in order:
            each.wait_until_ready()
        self.spans.append(FaultSpan("kill -9 of all", "all nodes", start, self._recorder.now()))

    def _restart(self, node: ChaosNode) -> None:
        with self._span("restart", node):
            node.stop()
            _start(node)

    def _pause(self, node: ChaosNode) -> None:
        with self._span("pause", node):
            node.pause()
            self._last()
            node.resume()

    # -- the network

    def _cut(self, node: ChaosNode) -> None:
        others = self._others(node)
        ways = [(node.number, other) for other in others] + [(other, node.number) for other in others]
        self._cut_ways("cut off", node, ways)

    def _one_way_cut(self, node: ChaosNode) -> None:
        ways = [(node.number, other) for other in self._others(node)]
        if self._random.random() < 0.5:
            ways = [(target, source) for source, target in ways]
        self._cut_ways("one-way cut", node, ways)

    def _others(self, node: ChaosNode) -> list[int]:
        return [number for number in self._cluster.nodes if number != node.number]

    def _cut_ways(self, kind: str, node: ChaosNode, ways: list[tuple[int, int]]) -> None:
        wires = self._cluster.wires
        assert wires is not None
        with self._span(kind, node):
            for source, target in ways:
                wires.cut(source, target)
            self._last()
            for source, target in ways:
                wires.heal(source, target)

    def _delay(self, node: ChaosNode) -> None:
        self._disturb(f"delay {_DELAY_SECONDS * 1000:.0f} ms", node, _DELAY_SECONDS, 0.0)

    def _loss(self, node: ChaosNode) -> None:
        self._disturb(f"loss {_LOSS:.0%}", node, 0.0, _LOSS)

    def _disturb(self, kind: str, node: ChaosNode, delay_seconds: float, loss: float) -> None:
        wires = self._cluster.wires
        assert wires is not None
        with self._span(kind, node):
            wires.disturb(node.number, delay_seconds, loss, self._random)
            self._last()
            wires.restore(node.number)

    # -- disks and clocks

    def _full_disk(self, node: ChaosNode) -> None:
        self._trouble("full disk", node, Trouble(is_full=True))

    def _failing_fsync(self, node: ChaosNode) -> None:
        self._trouble("failing fsync", node, Trouble(failing_syncs=self._random.choice((1, 1000))))

    def _slow_disk(self, node: ChaosNode) -> None:
        self._trouble("slow disk", node, Trouble(sync_seconds=_SLOW_SECONDS))

    def _stuck_disk(self, node: ChaosNode) -> None:
        self._trouble("stuck disk", node, Trouble(sync_seconds=_STUCK_SECONDS))

    def _clock(self, node: ChaosNode) -> None:
        self._trouble("clock jump", node, Trouble(clock_offset_ms=self._random.choice(_JUMPS_MS)))

    def _trouble(self, kind: str, node: ChaosNode, trouble: Trouble) -> None:
        """A node that exits because of the fault is restarted when its machine has recovered."""
        with self._span(kind, node):
            node.trouble(trouble)
            self._last()
            node.trouble(Trouble())
            time.sleep(_LOOK_SECONDS)
            if node.is_ending:
                node.wait_for_end()
                _start(node)

    def _old_disk(self, node: ChaosNode) -> None:
        """The node returns with an old copy of its directory, without some acknowledged messages."""
        copy = node.data.with_name("copy")
        with self._span("old disk", node):
            node.kill()
            shutil.copytree(node.data, copy)
            _start(node)
            self._last()
            node.kill()
            shutil.rmtree(node.data)
            copy.rename(node.data)
            _start(node)

    def _empty_disk(self, node: ChaosNode) -> None:
        """Start it with an empty disk under its known id: it must be refused until it has its own disk again."""
        kept = node.data.with_name("kept")
        with self._span("empty disk", node):
            node.kill()
            node.data.rename(kept)
            node.launch()
            try:
                node.wait_until_ready()
            except NodeFailed as failed:
                if "another data directory" not in str(failed):
                    raise
            else:
                raise NodeFailed(f"node {node.number} was let in with an empty disk")
            shutil.rmtree(node.data)
            kept.rename(node.data)
            _start(node)


def _start(node: ChaosNode) -> None:
    node.launch()
    node.wait_until_ready()
