"""Previews which partitions would move if a broker joined or left, by the ring of placement `ring`."""

import asyncio
from collections.abc import Collection
from typing import Any

from millstream.doors import Metadata
from millstream.doors.commands import HashRing, ViewVirtualNodes
from millstream.protocol.errors import KafkaError

_ASK_S = 5.0


async def cluster_virtual_nodes(metadata: Metadata) -> int | None:
    """The setting that the controller uses; None while no controller answers."""
    try:
        async with asyncio.timeout(_ASK_S):
            return await metadata.submit(ViewVirtualNodes())
    except (KafkaError, TimeoutError):
        return None


def preview(
    brokers: Collection[int],
    *,
    partitions: int,
    virtual_nodes: int,
    joins: int | None = None,
    leaves: int | None = None,
) -> dict[str, Any]:
    """Partitions by broker before and after, and the ones that move."""
    before = _owners(brokers, partitions, virtual_nodes)
    after_brokers = ({*brokers} | ({joins} if joins is not None else set())) - {leaves}
    after = _owners(after_brokers, partitions, virtual_nodes)
    moved = [index for index in range(partitions) if before.get(index) != after.get(index)]
    return {
        "partitions": partitions,
        "virtual_nodes": virtual_nodes,
        "before": _by_broker(before, brokers),
        "after": _by_broker(after, after_brokers),
        "moved": moved,
        "moved_by_modulo": sum(
            index % max(len(brokers), 1) != index % max(len(after_brokers), 1) for index in range(partitions)
        ),
    }


def _owners(brokers: Collection[int], partitions: int, virtual_nodes: int) -> dict[int, int]:
    if not brokers:
        return {}
    ring = HashRing(brokers, virtual_nodes)
    return {index: next(ring.from_key(str(index))) for index in range(partitions)}


def _by_broker(owners: dict[int, int], brokers: Collection[int]) -> dict[str, list[int]]:
    return {
        str(broker): [index for index, owner in owners.items() if owner == broker]
        for broker in sorted(brokers)
    }
