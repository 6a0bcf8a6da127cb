"""At the end of a run every partition has a leader, is fully in sync, and its copies are equal.

Byte for byte; copies of a compacted topic, which each node compacts by itself, must agree about each key.
"""

import errno
import os
from collections.abc import Collection, Iterator

from millstream.broker.node import Node
from millstream.broker.partitions.partition import Partition
from millstream.cluster.metadata.image import MetadataImage
from millstream.protocol.record_batch import CorruptBatch, read_header
from millstream.protocol.records import decode_records
from millstream.testing.simulator.cluster import SimulatedCluster

_MAX_BYTES = 1 << 24
_NO_SUCH_FILE = os.strerror(errno.ENOENT)


def newest_image(cluster: SimulatedCluster) -> MetadataImage:
    """Compares the nodes that serve, of which there must be at least one."""
    services = [node.serving.metadata for node in cluster.nodes.values() if node.serving is not None]
    return max(services, key=lambda each: each.quorum.status().applied_index).image


def what_is_missing(cluster: SimulatedCluster) -> str | None:
    """Why the cluster is not whole yet: a node that does not serve, or a partition without a leader or not fully in
    sync.
    """
    brokers: dict[int, Node] = {}
    for node in cluster.nodes.values():
        if node.node_id in cluster.removed:
            if node.is_up:
                return f"{node.name} was removed but still runs"
            continue
        if node.serving is None:
            return f"{node.name} does not serve"
        brokers[node.node_id] = node.serving
    for topic in newest_image(cluster).topics.values():
        for index, partition in enumerate(topic.partitions):
            name = f"{topic.name}-{index}"
            leader = brokers.get(partition.leader)
            if leader is None:
                return f"{name} has no leader"
            if partition.adding or partition.removing:
                return f"{name} is still being moved"
            if sorted(partition.isr) != sorted(partition.replicas):
                return f"{name} has {list(partition.isr)} of {list(partition.replicas)} in sync"
            led = leader.partitions.get(topic.name, index)
            if led is None or not led.is_leader or led.leader_epoch != partition.leader_epoch:
                return f"node {partition.leader} does not lead {name} yet"
            wanted = topic.configs.get("min.insync.replicas")
            state = led.replication
            if (
                wanted is not None
                and state is not None
                and state.min_isr != min(int(wanted), len(partition.replicas))
            ):
                return f"the leader of {name} wants {state.min_isr} in sync, the topic {wanted}"
    return None


def unexpected_ends(cluster: SimulatedCluster, faults: Collection[str]) -> Iterator[str]:
    """A node may end by itself when its disk is broken, but not because a file was deleted with its topic."""
    for node in cluster.nodes.values():
        for reason in dict.fromkeys(node.ends):
            is_broken = "failing_sync" in faults and _NO_SUCH_FILE not in reason
            if "cannot be written" in reason and not is_broken:
                yield f"{node.name} ended though its disk is sound: {reason}"


def differences(cluster: SimulatedCluster) -> Iterator[str]:
    """Below the leader's high watermark all copies are equal."""
    brokers = {node.node_id: node.serving for node in cluster.nodes.values() if node.serving is not None}
    for node_id, broker in brokers.items():
        for partition in broker.partitions:
            if not partition.is_leader or partition.log.offline is not None:
                continue
            upper = partition.high_watermark
            for other_id, other in brokers.items():
                copy = other.partitions.get(partition.topic, partition.index)
                if copy is None or copy is partition or copy.topic_id != partition.topic_id:
                    continue
                # Each replica deletes expired records by itself, at slightly different times.
                first = max(partition.log.log_start_offset, copy.log.log_start_offset)
                wanted, found = _content(partition, first, upper), _content(copy, first, upper)
                if wanted is not None and found is not None and found != wanted:
                    yield (
                        f"{partition.topic}-{partition.index}: below {upper} the copy of node {other_id} differs from"
                        f" that of its leader, node {node_id}"
                    )


def _content(partition: Partition, first: int, upper: int) -> object:
    data = _read(partition, first, upper)
    return _latest(data, upper) if data is not None and partition.log.config.compacts else data


def _latest(data: bytes, upper: int) -> dict[bytes | None, bytes]:
    latest: dict[bytes | None, bytes] = {}
    at = 0
    while at < len(data):
        size = read_header(data, at).size_bytes
        for record in decode_records(data[at : at + size], _MAX_BYTES):
            if record.offset < upper:
                latest.pop(record.key, None)
                if record.value is not None:
                    latest[record.key] = record.value
        at += size
    return latest


def _read(partition: Partition, first: int, upper: int) -> bytes | None:
    """None where a bit has rotted and nobody has read the record since: then nobody has received it either."""
    parts = []
    while first < upper:
        try:
            read = partition.log.read(first, _MAX_BYTES, upper)
        except CorruptBatch:
            return None
        if not len(read.data):
            break
        parts.append(bytes(read.data))
        first = read.next_offset
    return b"".join(parts)
