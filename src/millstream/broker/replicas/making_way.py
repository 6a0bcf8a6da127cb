"""A leader that cannot read records which are not committed yet lets another replica lead.

Followers cannot pass the damage, so nothing behind it would ever be committed. A replica that has all that was
acknowledged leads instead; what it lacks is cut here as this node follows.
"""

import asyncio
from uuid import UUID

from millstream.broker.partitions.partition import Partition
from millstream.cluster.metadata.leader_elections import MakeWay
from millstream.cluster.metadata.service import MetadataService
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.sometimes import sometimes

log = get_logger("millstream.replicas")

_RETRY_SECONDS = 0.1
_OUSTED = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)


class MakingWay:
    def __init__(self, node_id: int, metadata: MetadataService) -> None:
        self._node_id = node_id
        self._metadata = metadata

    async def ask(self, partition: Partition) -> str:
        """Why this node still leads; it is asked again later."""
        state = partition.replication
        if state is None:
            return "records that are not committed yet are damaged"
        others = ", ".join(str(each) for each in state.replicas if each != self._node_id)
        waits = (
            "uncommitted records are damaged here, so another replica must lead, and none that has all acknowledged"
            f" records is alive; start the nodes of its replicas: {others}"
        )
        if not self._has_successor(partition):
            return waits
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
                    return waits
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
        return "another replica leads now"

    def _has_successor(self, partition: Partition) -> bool:
        image = self._metadata.image
        known = image.partition(partition.topic, partition.index)
        return known is not None and any(
            each != self._node_id and image.is_live(each) for each in (*known.isr, *known.elr)
        )
