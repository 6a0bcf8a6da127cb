"""A leader that cannot read records which are not committed yet lets another replica lead.

Followers cannot pass the damage, so nothing behind it would ever be committed. A replica that has all that was
acknowledged leads instead; what it lacks is cut here as this node follows.
"""

import asyncio
from typing import NamedTuple
from uuid import UUID

from millstream.broker.partitions.partition import Partition
from millstream.cluster.metadata.leader_elections import MakeWay
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.replication import LeaderState
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.sometimes import sometimes

log = get_logger("millstream.replicas")

_RETRY_SECONDS = 0.1
_OUSTED = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)


class Waits(NamedTuple):
    """Why damage is not repaired, and what to do where that is not to wait."""

    reason: str
    advice: str = ""


class MakingWay:
    def __init__(self, node_id: int, metadata: MetadataService) -> None:
        self._node_id = node_id
        self._metadata = metadata

    async def ask(self, partition: Partition) -> Waits:
        """Why this node still leads; it is asked again later."""
        state = partition.replication
        if state is None:
            return Waits("records that are not committed yet are damaged")
        if not self._has_successor(partition):
            return self._waits(partition, state)
        command = MakeWay(
            self._node_id,
            self._metadata.broker_epoch,
            UUID(bytes=partition.topic_id),
            partition.index,
            partition.leader_epoch,
        )
        # From here on another may lead: this node answers nothing that a client relies on.
        state.is_making_way = True
        while partition.replication is state:
            try:
                if not await self._metadata.submit(command):
                    state.is_making_way = False
                    return self._waits(partition, state)
            except KafkaError as error:
                if error.code in _OUSTED:
                    break
                # An earlier attempt, whose answer was lost, may have been carried out.
            else:
                break
            await asyncio.sleep(_RETRY_SECONDS)
        sometimes("a leader with damage made way for another")
        log.warning(
            "leadership given up, uncommitted records are damaged",
            topic=partition.topic,
            partition=partition.index,
            offset=state.damaged_from,
            end=partition.log.log_end_offset,
        )
        return Waits("another replica leads now")

    def _waits(self, partition: Partition, state: LeaderState) -> Waits:
        me = self._node_id
        known = self._metadata.image.partition(partition.topic, partition.index)
        awaited = sorted((known.counted_on if known is not None else set(state.replicas)) - {me})
        reason = (
            f"uncommitted records from offset {state.damaged_from} on are damaged on node {me}, which leads: nothing"
            " can be written until another replica does"
        )
        restart = f"start node {me} again: it gives up these records, which no other replica has for sure"
        if not awaited:
            return Waits(reason, restart)
        names = ", ".join(map(str, awaited))
        are, have = ("node", "has") if len(awaited) == 1 else ("nodes", "have")
        return Waits(
            f"{reason}. Of the others {are} {names} {have} all that was acknowledged, and none is up",
            f"start {are} {names}; if the disk is lost: "
            + " ".join(f"`millstream cluster remove {each} --force`" for each in awaited)
            + f", then {restart}",
        )

    def _has_successor(self, partition: Partition) -> bool:
        image = self._metadata.image
        known = image.partition(partition.topic, partition.index)
        return known is not None and any(
            each != self._node_id and image.is_live(each) for each in (*known.isr, *known.elr)
        )
