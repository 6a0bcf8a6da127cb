"""Three or more nodes, their machines and the network between them, from one source of randomness."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from millstream.config.checks import check_timing
from millstream.config.settings import Settings, TopicSettings
from millstream.testing.simulator.loop import CURRENT, SimulatedLoop
from millstream.testing.simulator.machine import Machine
from millstream.testing.simulator.network import Network
from millstream.testing.simulator.node import PORT, TICK_MS, SimulatedNode
from millstream.testing.simulator.split_jobs import SplitJob, end_threads


class SimulatedCluster:
    def __init__(
        self,
        loop: SimulatedLoop,
        random: Random,
        count: int = 3,
        routing: str = "direct",
        change: Callable[[Settings], Settings] = lambda settings: settings,
    ) -> None:
        """`change` alters the usual settings for this run."""
        self.loop = loop
        self.network = Network(loop, Random(random.getrandbits(64)))
        names = [f"n{number}" for number in range(1, count + 1)]
        self.addresses = tuple((name, PORT) for name in names)
        settings = simulated_settings(
            tuple(f"{name}:{PORT}" for name in names),
            snapshot_size=random.choice((2_000, 4 << 20)),
            lag_ms=random.choice((4_000, 30_000)),
        )
        settings = change(replace(settings, broker=replace(settings.broker, client_routing=routing)))
        # With timings that a node refuses to start with, rules could be broken that otherwise hold.
        check_timing(settings, lambda _: None)
        self._settings = settings
        self.routing = routing
        self.nodes = {
            number: SimulatedNode(Machine(name, loop, Random(random.getrandbits(64))), number, settings)
            for number, name in enumerate(names, 1)
        }
        self.splits_jobs = self.keeps_caches = False
        self.removed: dict[int, None] = {}
        """Nodes that were removed from the cluster and are not started again."""
        self.given_up: dict[int, None] = {}
        """Removed nodes that also lost their disks: with an empty disk they would join under their free id."""
        self.spoken_for: dict[str, None] = {}
        """Machines whose disk or membership is being changed, so that nothing else changes them at the same time."""

    def split_jobs(self) -> None:
        """Run the threads' jobs in pieces. Call before anything is started."""
        self.splits_jobs = True
        for node in self.nodes.values():
            node.machine.splits_jobs = True

    def keep_caches(self) -> None:
        """No loss of power loses unsynced bytes. Call before anything is started."""
        self.keeps_caches = True
        for node in self.nodes.values():
            node.machine.keeps_cache = True

    def jobs_of_current(self) -> list[SplitJob]:
        """Jobs under way on the machine whose program runs now."""
        process = CURRENT.get()
        nodes = [node for node in self.nodes.values() if process is not None and node.name == process.machine]
        return [job for node in nodes for job in node.machine.split_jobs]

    def end(self) -> None:
        for node in self.nodes.values():
            node.machine.end()
        end_threads()

    def declare(self, topics: tuple[TopicSettings, ...]) -> None:
        """Declare topics in the settings of all nodes not started yet."""
        for node in self.nodes.values():
            node.settings = replace(node.settings, topics=topics)
        self._settings = replace(self._settings, topics=topics)

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()

    def add(self, random: Random) -> SimulatedNode:
        """Add a node with an empty disk that knows the first nodes' addresses; it is not started."""
        number = len(self.nodes) + 1
        machine = Machine(f"n{number}", self.loop, random)
        machine.splits_jobs, machine.keeps_cache = self.splits_jobs, self.keeps_caches
        node = SimulatedNode(machine, number, self._settings)
        self.nodes[number] = node
        return node

    @property
    def names(self) -> list[str]:
        return [node.name for node in self.nodes.values()]


def simulated_settings(seeds: tuple[str, ...], snapshot_size: int, lag_ms: int) -> Settings:
    """The defaults, at a pace that makes rare events common within a short run."""
    settings = Settings()
    return replace(
        settings,
        broker=replace(settings.broker, data_dir="/data", auto_create_topics=False),
        cluster=replace(
            settings.cluster,
            bootstrap_servers=seeds,
            tick=TICK_MS,
            snapshot_size=snapshot_size,
            heartbeat_interval=1000,
            session_timeout=3000,
        ),
        storage=replace(settings.storage, checkpoint_interval=5_000, cleaner_interval=5_000),
        replication=replace(
            settings.replication,
            default_replication_factor=len(seeds),
            min_insync_replicas=2,
            replica_lag_time_max=lag_ms,
            replica_fetch_wait_max=2000,
            leader_imbalance_check_seconds=15,
        ),
        kafka={
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "500",
            "group.share.min.session.timeout.ms": "6000",
        },
    )
