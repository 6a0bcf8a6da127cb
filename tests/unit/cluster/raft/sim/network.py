"""Messages between members: lost, doubled, late, out of order, or cut off in one direction."""

from collections.abc import Callable
from dataclasses import dataclass

from millstream.cluster.raft.codec import decode_message, encode_message
from millstream.cluster.raft.messages import Message
from unit.cluster.raft.sim.world import World


@dataclass
class Weather:
    drop: float = 0.0
    double: float = 0.0
    slow: float = 0.0


class Network:
    def __init__(self, world: World, deliver: Callable[[Message], None]) -> None:
        self._world = world
        self._deliver = deliver
        self.weather = Weather()
        self.cuts: set[tuple[int, int]] = set()
        """Pairs (from, to) between which nothing passes; the other direction may be open."""

    def send(self, message: Message) -> None:
        random = self._world.random
        path = (message.sender.node_id, message.to.node_id)
        copies = 1 + (random.random() < self.weather.double)
        if path in self.cuts or random.random() < self.weather.drop:
            return
        data = encode_message(message)
        for _ in range(copies):
            delay = random.uniform(0.5, 4)
            if random.random() < self.weather.slow:
                delay += random.uniform(10, 400)
            self._world.after(delay, lambda: self._arrive(path, data))

    def _arrive(self, path: tuple[int, int], data: bytes) -> None:
        if path not in self.cuts:
            self._deliver(decode_message(data))

    def cut(self, one: int, other: int, *, both_ways: bool = True) -> None:
        self.cuts.add((one, other))
        if both_ways:
            self.cuts.add((other, one))

    def heal(self) -> None:
        self.cuts.clear()
        self.weather = Weather()
