"""Gives up leadership of a partition whose uncommitted records are damaged on this node.

Followers cannot fetch beyond the damage, so nothing behind it would ever be committed. A replica that has every
acknowledged record leads instead; what it lacks is truncated when this node follows it.
"""

import asyncio
from typing import NamedTuple
from uuid import UUID

from millstream.broker.partitions.partition import Partition
from millstream.cluster.metadata.image import MetadataImage, PartitionImage
from millstream.cluster.metadata.leader_elections import MakeWay
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.replication import LeaderState
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.sometimes import sometimes

log = get_logger("millstream.replicas")

_RETRY_SECONDS = 0.1
_OUSTED = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)


class NotRepaired(NamedTuple):
    """Why damage is not repaired yet, and what to do where waiting does not help."""

    reason: str
    advice: str = ""


_DAMAGED = NotRepaired("records that are not committed yet are damaged")


class MakingWay:
    def __init__(self, node_id: int, metadata: MetadataService) -> None:
        self._node_id = node_id
        self._metadata = metadata

    async def ask(self, partition: Partition) -> NotRepaired:
        """Ask the controller for another leader; returns why the damage is not repaired. The caller tries again."""
        state = partition.replication
        if state is None:
            return _DAMAGED
        if not self._has_successor(partition):
            return self._why_it_leads(partition, state)
        command = MakeWay(
            self._node_id,
            self._metadata.broker_epoch,
            UUID(bytes=partition.topic_id),
            partition.index,
            partition.leader_epoch,
            state.partition_epoch,
        )
        # From here on another may lead: this node answers nothing that a client relies on.
        state.is_making_way = True
        while partition.replication is state:
            try:
                if not await self._metadata.submit(command):
                    # Final: an earlier attempt, whose answer was lost, is not carried out later.
                    state.is_making_way = False
                    return self._why_it_leads(partition, state)
            except KafkaError as error:
                if error.code in _OUSTED:
                    break
                # An earlier attempt, whose answer was lost, may have been carried out.
            else:
                break
            await asyncio.sleep(_RETRY_SECONDS)
        sometimes("a leader with damage made way for another")
        log.warning(
            "leadership given up",
            reason="uncommitted records damaged",
            topic=partition.topic,
            partition=partition.index,
            offset=state.damaged_from,
            end=partition.log.log_end_offset,
        )
        return NotRepaired("another replica leads now")

    def _has_successor(self, partition: Partition) -> bool:
        image = self._metadata.image
        known = image.partition(partition.topic, partition.index)
        return known is not None and _has_successor(self._node_id, known, image)

    def _why_it_leads(self, partition: Partition, state: LeaderState) -> NotRepaired:
        image = self._metadata.image
        known = image.partition(partition.topic, partition.index)
        return _DAMAGED if known is None else why_it_leads(self._node_id, state.damaged_from, known, image)


def why_it_leads(
    me: int, damaged_from: int | None, known: PartitionImage, image: MetadataImage
) -> NotRepaired:
    reason = (
        f"uncommitted records from offset {damaged_from} on are damaged on node {me}, which leads: nothing can be"
        " written until another replica does"
    )
    if _has_successor(me, known, image):
        # It has just come: the next attempt finds it.
        return NotRepaired(reason)
    restart = f"start node {me} again: it gives up these records, which no other replica has for sure"
    # A replica that is up is in doubt, and cannot lead while this node does.
    away = sorted(each for each in known.counted_on - {me} if not image.is_live(each))
    if not away:
        return NotRepaired(reason, restart)
    names = ", ".join(map(str, away))
    are, have = ("node", "has") if len(away) == 1 else ("nodes", "have")
    return NotRepaired(
        f"{reason}. Of the others {are} {names} {have} all that was acknowledged, and none is up",
        f"start {are} {names}; if the disk is lost: "
        + " ".join(f"`millstream cluster remove {each} --force`" for each in away)
        + f", then {restart}",
    )


def _has_successor(me: int, known: PartitionImage, image: MetadataImage) -> bool:
    return any(each != me and image.is_live(each) for each in (*known.isr, *known.elr))
