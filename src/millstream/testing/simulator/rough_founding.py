"""Founds a cluster during faults, in some runs of the swarm.

Nodes start in any order and are killed meanwhile. Once a node holds another's promise, it loses its disk: with an empty
disk it must be refused, and with its own disk it founds the cluster.
"""

import asyncio
from random import Random

import msgspec

from millstream.broker.peers.founder import FILE
from millstream.cluster.raft.membership import MemberKey
from millstream.testing.disk import SimulatedDisk
from millstream.testing.simulator.cluster import SimulatedCluster

_SHARE = 0.1
_LOOK_SECONDS, _LOOKS = 0.002, 5000


def is_rough(seed: int) -> bool:
    return Random(f"founding of {seed}").random() < _SHARE


async def start_roughly(cluster: SimulatedCluster, random: Random) -> None:
    nodes = list(cluster.nodes.values())
    for node in random.sample(nodes, len(nodes)):
        node.start()
        await asyncio.sleep(random.choice((0.0, 0.1, 1.0)))
        victim = random.choice(nodes)
        if victim.is_up and random.random() < 0.5:
            victim.crash(power_loss=random.random() < 0.5)
            victim.start()
    for _ in range(_LOOKS):
        founder = _promised_founder(cluster)
        if founder is not None:
            await _lose_disk_for_a_while(cluster, random, founder)
            return
        await asyncio.sleep(_LOOK_SECONDS)


def _promised_founder(cluster: SimulatedCluster) -> int | None:
    for node in cluster.nodes.values():
        disk, path = node.machine.disk, f"{node.settings.broker.data_dir}/{FILE}"
        if disk.exists(path):
            founder = msgspec.json.decode(disk.read(path), type=MemberKey).node_id
            if founder != node.node_id:
                return founder
    return None


async def _lose_disk_for_a_while(cluster: SimulatedCluster, random: Random, founder: int) -> None:
    node = cluster.nodes[founder]
    if node.is_up:
        node.crash(power_loss=False)
    kept, node.machine.disk = node.machine.disk, SimulatedDisk(random.getrandbits(64))
    node.start()
    await asyncio.sleep(random.uniform(2.0, 6.0))
    if node.is_up:
        node.crash(power_loss=True)
    node.machine.disk = kept
    node.start()
