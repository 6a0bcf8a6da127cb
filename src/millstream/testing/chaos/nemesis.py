"""What goes wrong in a chaos run: one fault at a time, on processes and networks."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from millstream.testing.chaos.clients import Recorder
from millstream.testing.chaos.processes import ChaosCluster, ChaosNode

_DELAY_MS = 100


@dataclass(frozen=True, slots=True)
class FaultSpan:
    """For the timeline: what was wrong, with whom, from when to when."""

    kind: str
    where: str
    start: float
    end: float


class ChaosNemesis:
    def __init__(
        self, cluster: ChaosCluster, random: Random, recorder: Recorder, fault_seconds: float
    ) -> None:
        self.spans: list[FaultSpan] = []
        self._cluster = cluster
        self._random = random
        self._recorder = recorder
        self._seconds = fault_seconds
        kinds: list[Callable[[], None]] = [self._kill, self._pause, self._restart]
        if cluster.wires is not None:
            kinds += [self._isolate, self._cut_one_way]
            if cluster.wires.has_delay:
                kinds.append(self._delay)
        self._kinds = kinds
        self._turn = 0

    def run(self, seconds: float) -> None:
        """All kinds in turn, in an order of the seed's, until the time is over."""
        deadline = time.monotonic() + seconds
        order = self._random.sample(self._kinds, len(self._kinds))
        while time.monotonic() < deadline:
            order[self._turn % len(order)]()
            self._turn += 1
            time.sleep(self._seconds * self._random.uniform(0.5, 1.0))

    def _any(self) -> ChaosNode:
        return self._random.choice(list(self._cluster.nodes.values()))

    def _last(self) -> None:
        time.sleep(self._seconds * self._random.uniform(0.5, 1.5))

    def _note(self, kind: str, where: str, start: float) -> None:
        self.spans.append(FaultSpan(kind, where, start, self._recorder.now()))

    def _kill(self) -> None:
        node, start = self._any(), self._recorder.now()
        node.kill()
        self._last()
        node.launch()
        node.wait_until_ready()
        self._note("kill -9", f"node {node.number}", start)

    def _restart(self) -> None:
        node, start = self._any(), self._recorder.now()
        node.stop()
        node.launch()
        node.wait_until_ready()
        self._note("restart", f"node {node.number}", start)

    def _pause(self) -> None:
        node, start = self._any(), self._recorder.now()
        node.pause()
        self._last()
        node.resume()
        self._note("pause", f"node {node.number}", start)

    def _isolate(self) -> None:
        node = self._any()
        others = [number for number in self._cluster.nodes if number != node.number]
        ways = [(node.number, other) for other in others] + [(other, node.number) for other in others]
        self._cut("cut off", f"node {node.number}", ways)

    def _cut_one_way(self) -> None:
        node = self._any()
        others = [number for number in self._cluster.nodes if number != node.number]
        self._cut("one-way cut", f"node {node.number}", [(node.number, other) for other in others])

    def _cut(self, kind: str, where: str, ways: list[tuple[int, int]]) -> None:
        wires = self._cluster.wires
        assert wires is not None
        start = self._recorder.now()
        for source, target in ways:
            wires.cut(source, target)
        self._last()
        for source, target in ways:
            wires.heal(source, target)
        self._note(kind, where, start)

    def _delay(self) -> None:
        wires = self._cluster.wires
        assert wires is not None
        node, start = self._any(), self._recorder.now()
        wires.delay(node.number, _DELAY_MS)
        self._last()
        wires.delay(node.number, 0)
        self._note(f"delay {_DELAY_MS} ms", f"node {node.number}", start)
