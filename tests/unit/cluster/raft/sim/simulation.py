"""A whole quorum on virtual time: clients, faults, then healing, which must lead to progress."""

from dataclasses import dataclass
from uuid import UUID

from millstream.cluster.raft.entries import Snapshot, first_snapshot
from millstream.cluster.raft.errors import RaftError
from millstream.cluster.raft.membership import MemberKey, Membership
from millstream.cluster.raft.messages import Message
from unit.cluster.raft.sim.checker import Broken, Checker
from unit.cluster.raft.sim.nemesis import Nemesis
from unit.cluster.raft.sim.network import Network
from unit.cluster.raft.sim.node import Node
from unit.cluster.raft.sim.world import World


@dataclass(frozen=True)
class Outcome:
    trace: str
    steps: int
    elections: int
    committed: int
    acknowledged: int
    reads: int


class Simulation:
    """`voters` begin the quorum; one more node waits to be added. In a storm no leader lasts."""

    def __init__(self, seed: int, voters: int, *, is_storm: bool = False) -> None:
        self.is_storm = is_storm
        self.world = World(seed)
        self.checker = Checker()
        self.network = Network(self.world, self._deliver)
        keys = [MemberKey(number, UUID(int=1000 + number)) for number in range(1, voters + 2)]
        first = first_snapshot(Membership(tuple(keys[:voters])))
        self.nodes = [
            Node(self.world, self.checker, self.network.send, key, first if place < voters else Snapshot())
            for place, key in enumerate(keys)
        ]
        self._by_id = {node.key.node_id: node for node in self.nodes}
        self._proposed = 0
        self._reads = 0
        self._reads_done = 0
        self._clients_on = True

    def run(self, duration_ms: float = 6_000) -> Outcome:
        try:
            for node in self.nodes:
                self.start(node)
            nemesis = Nemesis(self)
            self.checker.on_leader = lambda key: nemesis.on_new_leader(self._by_id[key.node_id])
            nemesis.strike_later()
            self._client_later()
            self.world.run_until(duration_ms)
            nemesis.is_on = False
            self._heal()
        except BaseException as error:
            error.add_note("\n".join(self.world.tail[-40:]))
            raise
        return Outcome(
            self.world.trace,
            self.world.steps,
            len(self.checker.leaders),
            self.checker.max_commit,
            len(self.checker.acknowledged),
            self._reads_done,
        )

    def start(self, node: Node) -> None:
        if node.member is None:
            node.start()

    def _deliver(self, message: Message) -> None:
        self._by_id[message.to.node_id].receive(message)

    # Clients

    def _client_later(self) -> None:
        pause = (0.5, 6) if self.is_storm else (1, 30)
        self.world.after(self.world.random.uniform(*pause), self._act_as_client)

    def _act_as_client(self) -> None:
        if not self._clients_on:
            return
        self._client_later()
        for node in self.nodes:
            if node.leads and not node.is_paused:
                self.propose(node)
        if self.world.random.random() < 0.3:
            self.read(self.world.random.choice(self.nodes))

    def propose(self, node: Node) -> None:
        if node.member is None or node.member.failure is not None:
            return
        self._proposed += 1
        data = b"%d" % self._proposed + b"." * self.world.random.randrange(60)

        def done(index: int, error: BaseException | None) -> None:
            if error is None:
                self.checker.acknowledge(index, data)

        try:
            node.member.propose(data, done)
        except RaftError:
            self.world.note(f"{node.name} refuses a proposal")
        node.observe()

    def read(self, node: Node) -> None:
        if node.member is None or node.member.failure is not None:
            return
        before = self.checker.max_commit
        self._reads += 1

        def done(index: int, error: BaseException | None) -> None:
            if error is None:
                self._reads_done += 1
                self.checker.read(index, before)

        node.read(UUID(int=self._reads), done)
        node.observe()

    # Healing

    def _heal(self) -> None:
        self.world.note("healing")
        self.network.heal()
        for node in self.nodes:
            node.is_paused = False
            node.slow_disk = 0.0
            node.disk.faults.clear()
            self.start(node)
        self._clients_on = False
        deadline = self.world.now + 15_000
        acknowledged = len(self.checker.acknowledged)
        while self.world.now < deadline:
            self.world.run_until(self.world.now + 200)
            for node in self.nodes:
                self.start(node)
                if node.leads:
                    self.propose(node)
            if len(self.checker.acknowledged) > acknowledged and self._settled():
                break
        else:
            raise Broken("healed, and yet no progress")
        leader = next(node for node in self.nodes if node.leads)
        members = leader.raft.state.log.membership.members
        machines = [node.machine for node in self.nodes if node.key in members]
        self.checker.finish(machines, leader.raft.state.log.last_index)

    def _settled(self) -> bool:
        """Everyone who is a member has applied all there is."""
        self.world.run_until(self.world.now + 300)
        leaders = [node for node in self.nodes if node.leads]
        if len(leaders) != 1:
            return False
        log = leaders[0].raft.state.log
        members = [node for node in self.nodes if node.key in log.membership.members]
        return all(
            node.member is not None and node.raft.state.log.applied_index == log.last_index
            for node in members
        )


def simulate(seed: int, voters: int, duration_ms: float = 6_000, *, is_storm: bool = False) -> Outcome:
    return Simulation(seed, voters, is_storm=is_storm).run(duration_ms)
