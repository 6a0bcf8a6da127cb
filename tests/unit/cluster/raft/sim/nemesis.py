"""What goes wrong, and when."""

import errno
from typing import TYPE_CHECKING

from millstream.cluster.raft.errors import RaftError
from millstream.cluster.raft.membership import Change, ChangeKind
from millstream.testing.disk import Fault, Operation
from unit.cluster.raft.sim.network import Weather
from unit.cluster.raft.sim.node import Node

if TYPE_CHECKING:
    from unit.cluster.raft.sim.simulation import Simulation


class Nemesis:
    def __init__(self, simulation: "Simulation") -> None:
        self._sim = simulation
        self._world = simulation.world
        self.is_on = True

    def strike_later(self) -> None:
        self._world.after(self._world.random.uniform(20, 250), self._strike)

    def on_new_leader(self, node: Node) -> None:
        """In a storm no leader lasts: it is gone when the first of its entries are on some disks, and often back."""
        random = self._world.random
        strike = self._crash_one if random.random() < 0.7 else self._isolate_one

        def strike_if_on() -> None:
            if self.is_on:
                strike(node)

        if self._sim.is_storm:
            self._world.after(random.uniform(1, 30), strike_if_on)

    def _strike(self) -> None:
        if not self.is_on:
            return
        strikes = [self._crash, self._crash_all, self._heal, self._weather, self._slow_disk]
        if not self._sim.is_storm:
            strikes += [self._crash, self._isolate, self._cut, self._cut_one_way, self._heal, self._pause]
            strikes += [self._disk_fault, self._transfer, self._change, self._change]
        strike = self._world.random.choice(strikes)
        self._world.note(f"nemesis: {strike.__name__[1:]}")
        strike()
        self.strike_later()

    def _some_node(self) -> Node:
        # Leaders are where it hurts.
        leaders = [node for node in self._sim.nodes if node.leads]
        random = self._world.random
        return random.choice(leaders if leaders and random.random() < 0.5 else self._sim.nodes)

    def _crash(self) -> None:
        self._crash_one(self._some_node())

    def _crash_all(self) -> None:
        for node in self._sim.nodes:
            self._crash_one(node)

    def _crash_one(self, node: Node) -> None:
        random = self._world.random
        node.crash(power_loss=random.random() < 0.7)
        # Back at once, others still have messages for its former life on the way.
        delay = random.uniform(1, 10) if random.random() < 0.5 else random.uniform(10, 400)
        self._world.after(delay, lambda: self._sim.start(node))

    def _cut(self) -> None:
        one, other = self._world.random.sample(self._sim.nodes, 2)
        self._sim.network.cut(one.key.node_id, other.key.node_id)

    def _cut_one_way(self) -> None:
        one, other = self._world.random.sample(self._sim.nodes, 2)
        self._sim.network.cut(one.key.node_id, other.key.node_id, both_ways=False)

    def _isolate(self) -> None:
        self._isolate_one(self._some_node())

    def _isolate_one(self, alone: Node) -> None:
        for node in self._sim.nodes:
            if node is not alone:
                self._sim.network.cut(alone.key.node_id, node.key.node_id)

    def _heal(self) -> None:
        self._sim.network.heal()

    def _weather(self) -> None:
        random = self._world.random
        self._sim.network.weather = Weather(
            random.uniform(0, 0.3), random.uniform(0, 0.3), random.uniform(0, 0.3)
        )

    def _pause(self) -> None:
        node = self._some_node()
        node.is_paused = True

        def resume() -> None:
            node.is_paused = False

        self._world.after(self._world.random.uniform(50, 500), resume)

    def _slow_disk(self) -> None:
        node = self._some_node()
        node.slow_disk = self._world.random.choice([0.0, 0.5, 1.0])

    def _disk_fault(self) -> None:
        node, random = self._some_node(), self._world.random
        operation, code = random.choice(
            [(Operation.SYNC, errno.EIO), (Operation.WRITE, errno.ENOSPC), (Operation.RENAME, errno.EIO)]
        )
        if node.member is not None:
            node.disk.faults.add(Fault(operation, code))

    def _transfer(self) -> None:
        for node in self._sim.nodes:
            if node.leads:
                try:
                    node.member.transfer_leadership(self._world.random.choice(self._sim.nodes).key)
                except (RaftError, OSError):
                    self._world.note("transfer refused")

    def _change(self) -> None:
        kind = self._world.random.choice(list(ChangeKind))
        change = Change(kind, self._world.random.choice(self._sim.nodes).key)
        for node in self._sim.nodes:
            if node.leads:
                voters = node.raft.state.log.membership.voters
                if kind is ChangeKind.REMOVE and len(voters) <= 2:
                    continue
                try:
                    node.member.propose_change(change, lambda result, error: None)
                    self._world.note(f"{node.name} {kind.value} n{change.member.node_id}")
                except RaftError as error:
                    self._world.note(f"{node.name} refuses: {error}")
