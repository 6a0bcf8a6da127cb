"""A member of a KIP-848 consumer group: one request both proves that it is alive and brings its assignment."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from millstream.protocol.errors import ErrorCode
from millstream.testing.history.groups import Owned
from millstream.testing.simulator.member import AGAIN, REQUEST_SECONDS, SimulatedMember

_JOINS, _LEAVES = 0, -1
_REVOKES = timedelta(seconds=6)


class ConsumerMember(SimulatedMember):
    """As a classic member, but partitions come and go one by one, and a revoked partition is committed first."""

    _topic_id: UUID | None = None
    _lives = 0
    _readers_made = 0

    async def _join(self) -> None:
        if not self._member_id:
            self._lives += 1
            self._member_id = str(UUID(int=self.client.random.getrandbits(128), version=4))
        self._generation, self._readers, self._committed = _JOINS, {}, {}
        alive = await self._heartbeat(
            rebalance_timeout=_REVOKES, subscribed_topic_names=(self._topic,), topic_partitions=()
        )
        self._check(alive.error_code)
        await self._take(alive)

    async def _take_up(self) -> None:
        """Resolved when partitions are assigned."""

    async def _beat(self) -> None:
        alive = await self._heartbeat(topic_partitions=self._owned())
        if alive.error_code in AGAIN:
            # Another broker may be the coordinator now; a member that reads nothing finds out only by looking it up.
            self._coordinator = None
            return
        self._check(alive.error_code)
        await self._take(alive)

    async def _take(self, alive: Any) -> None:
        """Apply the assignment: commit and confirm revoked partitions at once, start new ones where the group is."""
        self._generation = alive.member_epoch
        if alive.assignment is None:
            return
        mine: set[int] = set()
        for topic in alive.assignment.topic_partitions:
            self._topic_id = topic.topic_id
            mine |= set(topic.partitions)
        gone = [partition for partition in self._readers if partition not in mine]
        if gone:
            await self._commit()
            for partition in gone:
                del self._readers[partition], self._committed[partition]
        await self._begin(sorted(mine - set(self._readers)))
        if gone:
            await self._beat()

    async def _begin(self, partitions: Sequence[int]) -> None:
        if not partitions:
            return
        now = self.client.loop.time()
        self._group.owned += [
            Owned(self._member_id, self._generation, self._key(partition), now) for partition in partitions
        ]
        self._readers_made += 1
        new = {partition: self._reader(partition) for partition in partitions}
        for partition, offset in (await self._positions(partitions)).items():
            self._committed[partition] = new[partition].position = max(offset, 0)
        self._readers |= new

    def _process(self) -> str:
        return f"{self.client.name}-{self._generation}-{self._readers_made}"

    def _owned(self) -> list[dict[str, Any]]:
        if self._topic_id is None or not self._readers:
            return []
        return [{"topic_id": self._topic_id, "partitions": tuple(self._readers)}]

    async def _heartbeat(self, **fields: Any) -> Any:
        return await self._ask(
            "consumer_group_heartbeat", 1, REQUEST_SECONDS,
            member_id=self._member_id, member_epoch=self._generation, **fields,
        )  # fmt: skip

    async def _leave(self) -> None:
        await self._ask(
            "consumer_group_heartbeat", 1, REQUEST_SECONDS,
            member_id=self._member_id, member_epoch=_LEAVES, topic_partitions=None,
        )  # fmt: skip

    async def _send_commit(self, partition: int, offset: int) -> ErrorCode:
        return await self._commit_at(9, partition, offset)
