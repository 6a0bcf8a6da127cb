"""Files decay: bits rot in records and index files, and files go missing.

Each partition decays on one machine only, so that a sound copy is left; the machine differs between partitions.
Uncommitted records may rot on any machine.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from itertools import pairwise
from random import Random

from millstream.broker.partitions.partition import Partition
from millstream.observability.logs import get_logger
from millstream.storage.layout import CUT_FILE, LOG_SUFFIX
from millstream.testing.simulator.client import NoAnswer, SimulatedClient
from millstream.testing.simulator.cluster import SimulatedCluster
from millstream.testing.simulator.node import SimulatedNode
from millstream.testing.simulator.quorum_watch import QuorumWatch

log = get_logger("millstream.nemesis")

KINDS = ("rot_anywhere", "rot_beside", "lost_segment", "rotten_tail", "rot_in_move")

_TOPICS = "/data/topics/"
_HEADER_BYTES = 61
# An append takes a few milliseconds to reach the other replicas.
_TAIL_LOOK_SECONDS, _TAIL_LOOKS = 0.004, 1500
_MOVE_LOOK_SECONDS, _MOVE_LOOKS = 0.2, 50


class Decay:
    def __init__(
        self,
        cluster: SimulatedCluster,
        random: Random,
        quorum: QuorumWatch,
        while_down: Callable[[SimulatedNode, Callable[[], None]], Awaitable[None]],
    ) -> None:
        """`while_down` stops a node, calls a function, and starts the node again."""
        self._cluster = cluster
        self._random = random
        self._quorum = quorum
        self._while_down = while_down
        self._victims: dict[str, int] = {}

    def _victim(self, directory: str) -> int:
        """The node on which this partition's files decay."""
        if directory not in self._victims:
            self._victims[directory] = self._random.choice(list(self._cluster.nodes))
        return self._victims[directory]

    def _files(self, node: SimulatedNode) -> list[str]:
        """The files of the partitions that decay on this node."""
        paths = [path for path in node.machine.disk.paths() if path.startswith(_TOPICS)]
        return [path for path in paths if self._victim(path.rpartition("/")[0]) == node.node_id]

    def _any(self) -> SimulatedNode:
        return self._random.choice(list(self._cluster.nodes.values()))

    async def rot_anywhere(self) -> None:
        node = self._any()
        logs = [path for path in self._files(node) if path.endswith(LOG_SUFFIX)]
        if node.is_up and logs:
            self._rot(node, self._random.choice(logs))

    def _rot(self, node: SimulatedNode, path: str) -> None:
        """Rot a bit, but not in the newest bytes, which other replicas may not have."""
        disk = node.machine.disk
        size = disk.size(path)
        if size >= 200:
            position = self._random.randrange(size // 2)
            disk.flip_bit(path, position, self._random.randrange(8))
            log.warning("bit rot", where=[node.name], path=path, position=position)

    async def rot_beside(self) -> None:
        """A file beside the logs is damaged, removed, or replaced by a foreign one."""
        node = self._any()
        await self._while_down(node, lambda: self._spoil(node))

    def _spoil(self, node: SimulatedNode) -> None:
        random, disk = self._random, node.machine.disk
        # Only this file records that a log is in doubt.
        small = [path for path in self._files(node) if not path.endswith((LOG_SUFFIX, CUT_FILE))]
        small += [
            path for path in ("/data/checkpoint", "/data/replication-offset-checkpoint") if disk.exists(path)
        ]
        path = random.choice(small)
        size = disk.size(path)
        way = random.choice(("flipped", "cut", "gone", "unknown"))
        if way == "flipped" and size:
            disk.flip_bit(path, random.randrange(size), random.randrange(8))
        elif way == "gone":
            disk.unlink(path)
        elif way == "unknown":
            path = f"{path.rpartition('/')[0]}/notes.txt"
            disk.write_atomically(path, b"none of ours")
        else:
            disk.write_atomically(path, disk.read(path)[: size // 2])
        log.warning("file spoiled", where=[node.name], path=path, way=way)

    async def lost_segment(self) -> None:
        """Remove a segment of a stopped node; never the last one of a log, by which recovery knows that there are
        records.
        """
        node = self._any()
        await self._while_down(node, lambda: self._lose(node))

    def _lose(self, node: SimulatedNode) -> None:
        logs = sorted(path for path in self._files(node) if path.endswith(LOG_SUFFIX))
        found = [
            path
            for path, following in pairwise(logs)
            if path.rpartition("/")[0] == following.rpartition("/")[0]
        ]
        if found:
            path = self._random.choice(found)
            node.machine.disk.unlink(path)
            log.warning("segment lost", where=[node.name], path=path)

    async def rotten_tail(self) -> None:
        """A leader's records rot before the followers have fetched them."""
        for _ in range(_TAIL_LOOKS):
            led = [
                (node, partition)
                for node in self._cluster.nodes.values()
                if node.serving is not None
                for partition in node.serving.partitions
                if partition.is_leader and _has_tail(partition)
                if self._victim(partition.log.directory) == node.node_id
            ]
            if led:
                self._rot_tail(*self._random.choice(led))
                return
            await asyncio.sleep(_TAIL_LOOK_SECONDS)

    def _rot_tail(self, node: SimulatedNode, partition: Partition) -> None:
        disk, segments = node.machine.disk, partition.log.segments
        segment = segments[segments.find(partition.high_watermark)]
        start = segment.position_of(disk, partition.high_watermark) or 0
        size = segment.summary.size_bytes
        if size - start > _HEADER_BYTES:
            position = self._random.randrange(start, size)
            disk.flip_bit(segment.log_path, position, self._random.randrange(8))
            log.warning("bit rot in the tail", where=[node.name], path=segment.log_path, position=position)

    async def rot_in_move(self) -> None:
        """A replica is removed, the leader's records rot, and the replica returns: it must copy a damaged log."""
        image = self._quorum.newest
        found = [
            (topic.name, p.index, p.leader, p.replicas)
            for topic in image.topics.values()
            for p in topic.partitions
            if p.leader in self._cluster.nodes and len(p.replicas) > 2 and len(p.isr) == len(p.replicas)
            if not p.removing and self._victim(f"{_TOPICS}{topic.name}/partition-{p.index}") == p.leader
        ]
        if not found:
            return
        topic, index, leader, replicas = self._random.choice(found)
        gone = self._random.choice([each for each in replicas if each != leader])
        client = SimulatedClient(
            "decay", self._cluster.loop, Random(self._random.getrandbits(64)), self._cluster.addresses
        )
        work = self._move_and_rot(client, topic, index, leader, replicas, gone)
        await self._cluster.loop.create_task(work, name="decay", context=client.process.context)

    async def _move_and_rot(
        self,
        client: SimulatedClient,
        topic: str,
        index: int,
        leader: int,
        replicas: tuple[int, ...],
        gone: int,
    ) -> None:
        await self._reassign(client, topic, index, [each for each in replicas if each != gone])
        for _ in range(_MOVE_LOOKS):
            await asyncio.sleep(_MOVE_LOOK_SECONDS)
            now = self._quorum.newest.partition(topic, index)
            if now is None or (gone not in now.replicas and now.leader != leader):
                break
            if gone not in now.replicas:
                node = self._cluster.nodes[leader]
                directory = f"{_TOPICS}{topic}/partition-{index}/"
                logs = [path for path in node.machine.disk.paths() if path.startswith(directory)]
                logs = sorted(path for path in logs if path.endswith(LOG_SUFFIX))
                if logs:
                    self._rot(node, logs[0])
                break
        await self._reassign(client, topic, index, replicas)

    async def _reassign(
        self, client: SimulatedClient, topic: str, index: int, replicas: Iterable[int]
    ) -> None:
        try:
            await client.call(
                client.any_node(), "alter_partition_reassignments", 0, 6.0, timeout=timedelta(seconds=5),
                topics=[{
                    "name": topic, "partitions": [{"partition_index": index, "replicas": list(replicas)}],
                }],
            )  # fmt: skip
        except NoAnswer:
            log.info("no answer to a move", topic=topic, partition=index)


def _has_tail(partition: Partition) -> bool:
    """Whether there are records that cannot be committed without another replica."""
    state = partition.replication
    if state is None or state.min_isr < 2 or len(state.replicas) < 2 or partition.log.offline is not None:
        return False
    return partition.log.log_end_offset > partition.high_watermark
