"""What a node knows of the cluster: one Metadata request, read by hand.

Thousands of partitions are looked at many times a second here; a general decoder would be measured instead.
"""

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from bench.rawclient import call, string

_METADATA, _VERSION = 3, 4
_TIMEOUT_SECONDS = 30.0
_PARTITION = struct.Struct(">hiii")
_I16, _I32 = struct.Struct(">h"), struct.Struct(">i")
NOBODY = -1


@dataclass(frozen=True, slots=True)
class PartitionState:
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        return self.leader != NOBODY and len(self.isr) == len(self.replicas)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """`topics` has those that exist, their partitions by index."""

    controller: int
    brokers: tuple[int, ...]
    topics: dict[str, dict[int, PartitionState]]

    def partitions(self) -> list[PartitionState]:
        return [state for partitions in self.topics.values() for state in partitions.values()]


def look(address: str, topics: Sequence[str] | None = None) -> ClusterState:
    """All topics unless some are named; OSError when the node is not there or does not answer."""
    host, _, port = address.rpartition(":")
    body = struct.pack(">i", -1) if topics is None else struct.pack(">i", len(topics))
    body += b"".join(map(string, topics or ())) + b"\0"
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _read(call(connection, _METADATA, _VERSION, body))


def _read(data: bytes) -> ClusterState:
    # The throttle time comes first.
    count, at = _I32.unpack_from(data, 4)[0], 8
    brokers = []
    for _ in range(count):
        brokers.append(_I32.unpack_from(data, at)[0])
        at = _after_string(data, at + 4) + 4
        at = _after_string(data, at)
    at = _after_string(data, at)
    controller, count = struct.unpack_from(">ii", data, at)
    at += 8
    topics = {}
    for _ in range(count):
        error = _I16.unpack_from(data, at)[0]
        end = _after_string(data, at + 2)
        name = data[at + 4 : end].decode()
        partitions, at = _read_partitions(data, end + 1)
        if not error:
            topics[name] = partitions
    return ClusterState(controller, tuple(brokers), topics)


def _read_partitions(data: bytes, at: int) -> tuple[dict[int, PartitionState], int]:
    count, at = _I32.unpack_from(data, at)[0], at + 4
    partitions = {}
    for _ in range(count):
        _error, index, leader, replica_count = _PARTITION.unpack_from(data, at)
        at += _PARTITION.size
        replicas = struct.unpack_from(f">{replica_count}i", data, at)
        at += 4 * replica_count
        isr_count = _I32.unpack_from(data, at)[0]
        isr = struct.unpack_from(f">{isr_count}i", data, at + 4)
        at += 4 + 4 * isr_count
        partitions[index] = PartitionState(leader, replicas, isr)
    return partitions, at


def _after_string(data: bytes, at: int) -> int:
    length: int = _I16.unpack_from(data, at)[0]
    return at + 2 + max(0, length)
