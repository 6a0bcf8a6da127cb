"""Producer ids: handed out from blocks that the metadata knows, so that no id is ever used twice."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from millstream.cluster.metadata.commands import Decision, NewId
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import ProducerIdsAllocated
from millstream.protocol.errors import ErrorCode, KafkaError

BLOCK_SIZE = 1000
_LARGEST_ID = 2**63 - 1


class AllocateProducerIds(msgspec.Struct, frozen=True):
    """Answers the range of ids that now belongs to the asker alone."""

    count: int = BLOCK_SIZE

    def decide(self, image: MetadataImage, _new_id: NewId, /) -> Decision[range]:
        first = image.next_producer_id
        if first > _LARGEST_ID - self.count:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids of this cluster are used up")
        return Decision((ProducerIdsAllocated(first + self.count),), range(first, first + self.count))


class ProducerIdPool:
    """This broker's block. A crash loses the rest of the block and nothing else."""

    __slots__ = ("_allocate", "_block", "_refill")

    def __init__(self, allocate: Callable[[AllocateProducerIds], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._block = iter(range(0))
        self._refill = asyncio.Lock()

    async def take(self) -> int:
        """The next unused id; waits for the quorum once in a thousand."""
        while (producer_id := next(self._block, None)) is None:
            async with self._refill:
                # The task that held the lock before may have brought a new block already.
                if (producer_id := next(self._block, None)) is not None:
                    return producer_id
                self._block = iter(await self._allocate(AllocateProducerIds()))
        return producer_id
