"""Producer ids: taken from blocks that the metadata records, so that no id is ever used twice."""

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
    """Answers a range of ids that is reserved for the caller."""

    count: int = BLOCK_SIZE

    def decide(self, image: MetadataImage, _new_id: NewId, /) -> Decision[range]:
        first = image.next_producer_id
        if first > _LARGEST_ID - self.count:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids of this cluster are used up")
        return Decision((ProducerIdsAllocated(first + self.count),), range(first, first + self.count))


class ProducerIdPool:
    """This broker's current block. A crash wastes only the rest of the block."""

    __slots__ = ("_allocate", "_block", "_refill")

    def __init__(self, allocate: Callable[[AllocateProducerIds], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._block = iter(range(0))
        self._refill = asyncio.Lock()

    async def take(self) -> int:
        """The next unused id; one call in a thousand waits for the quorum."""
        while (producer_id := next(self._block, None)) is None:
            async with self._refill:
                # The previous holder of the lock may have fetched a new block already.
                if (producer_id := next(self._block, None)) is not None:
                    return producer_id
                self._block = iter(await self._allocate(AllocateProducerIds()))
        return producer_id
