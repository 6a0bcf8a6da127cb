"""Adds nodes to the running cluster and removes nodes, as `millstream cluster add` and `remove` do.

A fourth node joins with an empty disk, gets a vote and replicas; then one of the four is removed, perhaps the new one,
and perhaps joins again with an empty disk. In some runs the removed node has lost its disk, as for `remove --force`.
All of it while nodes die and are cut off.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from datetime import timedelta
from random import Random
from typing import Any

from millstream.cluster.metadata.image import MetadataImage, PartitionImage
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode
from millstream.testing.disk import SimulatedDisk
from millstream.testing.simulator.client import NoAnswer, SimulatedClient
from millstream.testing.simulator.cluster import SimulatedCluster
from millstream.testing.simulator.node import SimulatedNode
from millstream.testing.simulator.quorum_watch import QuorumWatch

log = get_logger("millstream.nodes")

_SHARE = 0.25
_SECONDS = 6.0
_LOOK_SECONDS = 0.3
_VOTERS = 3
_LOSS_LOOKS = 50
_GIVING_UP_SHARE = 0.3


def changes_nodes(seed: int) -> bool:
    """Whether nodes are added and removed in this run; not if all of one node's disk rots."""
    return Random(f"changes of nodes in {seed}").random() < _SHARE


def gives_up_a_node(seed: int) -> bool:
    return Random(f"a node is given up in {seed}").random() < _GIVING_UP_SHARE


class NodeChanges:
    """After `finish`, changes under way are completed and none is begun."""

    def __init__(
        self, cluster: SimulatedCluster, random: Random, quorum: QuorumWatch, *, gives_up: bool = False
    ) -> None:
        """`gives_up`: the node to remove has lost its disk."""
        self.count = 0
        self._gives_up = gives_up
        self._cluster = cluster
        self._random = random
        self._quorum = quorum
        self._client = SimulatedClient(
            "nodes", cluster.loop, Random(random.getrandbits(64)), cluster.addresses
        )
        self._is_over = False
        self._given_votes: dict[int, None] = {}
        self._unsure: set[int] = set()
        """Nodes named by a request without an answer, which may still be carried out."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        context = self._client.process.context
        self._task = self._cluster.loop.create_task(self._work(), name="nodes", context=context)

    async def finish(self) -> None:
        self._is_over = True
        if self._task is not None:
            await self._task

    def what_is_missing(self) -> str | None:
        """Why the membership is not as requested."""
        leading = [
            node.serving.metadata.quorum.status()
            for node in self._cluster.nodes.values()
            if node.serving is not None and node.serving.metadata.is_controller
        ]
        if not leading:
            return "there is no controller"
        membership = leading[0].membership
        voters = {voter.node_id for voter in membership.voters}
        there = set(self._cluster.nodes) - set(self._cluster.removed)
        if {each.node_id for each in membership.members} != there:
            return f"of the nodes {sorted(there)} other ones are in the quorum: {membership}"
        if len(voters) < _VOTERS or not set(self._given_votes) <= voters:
            return f"votes were given to {list(self._given_votes)}, and {sorted(voters)} have one"
        registered = sorted(self._image.brokers)
        return None if registered == sorted(there) else f"registered are {registered}, not {sorted(there)}"

    def _may_begin(self) -> bool:
        return not self._is_over

    @property
    def _image(self) -> MetadataImage:
        """The newest metadata, as an operator would check before removing a node."""
        return self._quorum.newest

    async def _work(self) -> None:
        random = self._random
        await asyncio.sleep(random.uniform(0.5, 6.0))
        if not self._may_begin():
            return
        has_vote = random.random() < 0.5
        new = self._cluster.add(Random(random.getrandbits(64)))
        await self._join(new, has_vote=has_vote)
        if random.random() < 0.8:
            await self._give(new.node_id)
        await asyncio.sleep(random.expovariate(1 / 3.0))
        victims = [each for each in self._cluster.nodes if each not in self._unsure]
        if not self._may_begin() or not victims or random.random() < 0.1:
            return
        victim = self._cluster.nodes[
            new.node_id if new.node_id in victims and random.random() < 0.25 else random.choice(victims)
        ]
        heir = None if has_vote or victim is new else new
        if self._gives_up:
            if not await self._lose(victim):
                return
            await self._remove(victim, heir)
            self._cluster.given_up[victim.node_id] = None
            # Another fault may have started it with the empty disk, under an id that was free again: it joined.
            if victim.is_up:
                victim.crash(power_loss=False)
            await self._unregister(victim)
            await self._take_vote(victim)
        else:
            await self._remove(victim, heir)
        if not self._gives_up and random.random() < 0.5:
            await self._try_the_old_disk(victim)
        await asyncio.sleep(random.expovariate(1 / 3.0))
        if self._may_begin() and victim.node_id not in self._unsure and random.random() < 0.5:
            await self._return(victim)

    # -- coming

    async def _join(self, node: SimulatedNode, *, has_vote: bool) -> None:
        """Return when the node has joined; with `has_vote` when it has a vote."""
        log.warning("node comes", node=node.name, has_vote=has_vote)
        # Until the cluster knows the node, it would accept another disk under its id.
        self._cluster.spoken_for[node.name] = None
        if not node.is_up:
            node.start()
        while not self._image.is_live(node.node_id):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(_LOOK_SECONDS)
        del self._cluster.spoken_for[node.name]
        if has_vote:
            await self._give_vote(node)
        self.count += 1
        log.warning("node is in", node=node.name)

    async def _give_vote(self, node: SimulatedNode) -> None:
        done = (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER)
        patience = timedelta(seconds=5)
        await self._insist(
            done, "add_raft_voter", node, voter_id=node.node_id, listeners=(), timeout=patience
        )
        self._given_votes[node.node_id] = None

    async def _give(self, node_id: int) -> None:
        """Give it replicas of some partitions, in any order."""
        random = self._random
        for name, index, partition in list(_partitions(self._image)):
            others = [each for each in partition.replicas if each != node_id]
            if random.random() < 0.6:
                replicas = [node_id, *random.sample(others, min(2, len(others)))]
                random.shuffle(replicas)
                await self._reassign(name, index, replicas)

    # -- going

    async def _lose(self, node: SimulatedNode) -> bool:
        """Lose its disk. False, with the disk restored, if it held something that the other nodes lack."""
        while node.name in self._cluster.spoken_for:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)
        log.warning("node loses its disk", node=node.name)
        self._cluster.spoken_for[node.name] = None
        kept = node.machine.disk
        if node.is_up:
            node.crash(power_loss=True)
        node.machine.disk = SimulatedDisk(self._random.getrandbits(64))
        for _ in range(_LOSS_LOOKS):
            await asyncio.sleep(_LOOK_SECONDS)
            if not self._image.is_live(node.node_id) and self._is_spare(node.node_id):
                del self._cluster.spoken_for[node.name]
                return True
        if node.is_up:
            node.crash(power_loss=True)
        node.machine.disk = kept
        node.start()
        del self._cluster.spoken_for[node.name]
        return False

    def _is_spare(self, node_id: int) -> bool:
        """Whether every partition has another replica that surely has all its records."""
        return all(
            set(partition.isr) - {node_id}
            for _, _, partition in _partitions(self._image)
            if node_id in partition.replicas
        )

    async def _remove(self, node: SimulatedNode, heir: SimulatedNode | None) -> None:
        """Move its replicas to other nodes, then remove its registration and its vote; its process ends.

        The `heir` gets a vote at the same moment: the quorum must make one change after the other.
        """
        while node.name in self._cluster.spoken_for:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)
        self._cluster.spoken_for[node.name] = None
        log.warning("node goes", node=node.name, heir=None if heir is None else heir.name)
        self._given_votes.pop(node.node_id, None)
        await self._unregister(node)
        works: list[Coroutine[Any, Any, None]] = [self._take_vote(node)]
        if heir is not None:
            works.append(self._give_vote(heir))
        await asyncio.gather(*works)
        self._cluster.removed[node.node_id] = None
        # Topics may have been created meanwhile.
        await self._evacuate(node.node_id)
        self.count += 1
        log.warning("node is out", node=node.name)

    async def _unregister(self, node: SimulatedNode) -> None:
        gone = (ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED)
        while True:
            await self._evacuate(node.node_id)
            if await self._ask("unregister_broker", node, broker_id=node.node_id) in gone:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _take_vote(self, node: SimulatedNode) -> None:
        out = (ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND)
        await self._insist(out, "remove_raft_voter", node, voter_id=node.node_id)

    async def _evacuate(self, node_id: int) -> None:
        """Return when the node has no replica."""
        while True:
            image = self._image
            left = [each for each in _partitions(image) if node_id in each[2].replicas]
            if not left:
                return
            for name, index, partition in left:
                target = [each for each in partition.replicas if each not in partition.removing]
                free = [each for each in image.brokers if each not in (*target, node_id)]
                if node_id in target and free:
                    chosen = self._random.choice(free)
                    await self._reassign(
                        name, index, [chosen if each == node_id else each for each in target]
                    )
            await asyncio.sleep(_LOOK_SECONDS)

    # -- coming again

    async def _try_the_old_disk(self, node: SimulatedNode) -> None:
        """Start a removed node, which does not know of its removal: it is refused, and ends by itself."""
        while node.is_up:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)
        log.warning("removed node is started", node=node.name)
        node.start()

    async def _return(self, node: SimulatedNode) -> None:
        """Under its id, with an empty disk."""
        if node.is_up:
            node.crash(power_loss=False)
        node.machine.disk = SimulatedDisk(self._random.getrandbits(64))
        del self._cluster.removed[node.node_id]
        self._cluster.given_up.pop(node.node_id, None)
        await self._join(node, has_vote=self._random.random() < 0.5)
        await self._give(node.node_id)

    # -- requests

    async def _reassign(self, topic: str, index: int, replicas: list[int]) -> None:
        try:
            reply = await self._client.call(
                self._client.any_node(), "alter_partition_reassignments", 0, _SECONDS, timeout=timedelta(seconds=5),
                topics=[{"name": topic, "partitions": [{"partition_index": index, "replicas": replicas}]}],
            )  # fmt: skip
            codes = [each.error_code for each in (reply, *(p for t in reply.responses for p in t.partitions))]
        except NoAnswer:
            codes = [ErrorCode.REQUEST_TIMED_OUT]
        if ErrorCode.REQUEST_TIMED_OUT in codes:
            self._unsure |= set(replicas)
        log.warning("moved", topic=topic, partition=index, replicas=replicas, codes=codes)

    async def _insist(
        self, done: tuple[ErrorCode, ...], name: str, node: SimulatedNode, **fields: Any
    ) -> None:
        while await self._ask(name, node, **fields) not in done:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(self._random.expovariate(1 / _LOOK_SECONDS))

    async def _ask(self, name: str, node: SimulatedNode, **fields: Any) -> int:
        try:
            reply = await self._client.call(self._client.any_node(), name, 0, _SECONDS, **fields)
            code: int = reply.error_code
        except NoAnswer:
            code = ErrorCode.REQUEST_TIMED_OUT
        if code == ErrorCode.REQUEST_TIMED_OUT:
            self._unsure.add(node.node_id)
        log.warning("asked", request=name, node=node.name, code=code)
        return code


def _partitions(image: MetadataImage) -> Iterable[tuple[str, int, PartitionImage]]:
    for name, topic in image.topics.items():
        for index, partition in enumerate(topic.partitions):
            yield name, index, partition
