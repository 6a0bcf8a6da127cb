"""A member of a consumer group: joins, reads its assignment, commits what it has read, and sometimes leaves."""

import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta
from math import inf
from typing import Any

from millstream.coordinator.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from millstream.protocol.errors import ErrorCode
from millstream.testing.history import History, Outcome
from millstream.testing.history.groups import Commit, GroupHistory, Owned, Position
from millstream.testing.simulator.client import Address, NoAnswer, SimulatedClient
from millstream.testing.simulator.consumer import SimulatedConsumer

_RETRY_SECONDS = 0.2
REQUEST_SECONDS = 3.0
_JOIN_SECONDS = 12.0
_SESSION = timedelta(seconds=6)
_BEAT_SECONDS = 1.5
_COMMIT_SECONDS = 1.0
_STAYS_SECONDS = 25.0
_POLL_MS = 500
_ASSIGNOR = "range"

# The coordinator is elsewhere, or not ready: retry the same request.
AGAIN = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
)


class _Over(Exception):
    """The member no longer exists, or belongs to an earlier generation."""


class SimulatedMember:
    """A member of a classic group, with a reader per partition. `group` records the answers to all its members."""

    def __init__(
        self,
        client: SimulatedClient,
        topic: str,
        partitions: Callable[[], int],
        group: GroupHistory,
        history: History,
    ) -> None:
        """`partitions` returns the topic's present number of partitions."""
        self.client = client
        self._topic = topic
        self._partitions = partitions
        self._group = group
        self._history = history
        self._member_id = ""
        self._generation = -1
        self._coordinator: Address | None = None
        self._readers: dict[int, SimulatedConsumer] = {}
        self._committed: dict[int, int] = {}

    async def live(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            try:
                await self._join()
                await self._take_up()
                await self._work(is_over)
            except (NoAnswer, _Over):
                self._coordinator = None
                await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(_RETRY_SECONDS * (0.5 + self.client.random.random()))

    # -- membership

    async def _join(self) -> None:
        subscription = encode_subscription(Subscription(frozenset({self._topic})))
        while True:
            joined = await self._ask(
                "join_group", 5, _JOIN_SECONDS,
                member_id=self._member_id, session_timeout=_SESSION, rebalance_timeout=_SESSION,
                protocol_type=PROTOCOL_TYPE, protocols=[{"name": _ASSIGNOR, "metadata": subscription}],
            )  # fmt: skip
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = joined.member_id
                continue
            self._check(joined.error_code)
            break
        self._member_id, self._generation = joined.member_id, joined.generation_id
        members = sorted(member.member_id for member in joined.members)
        synced = await self._ask(
            "sync_group", 3, _JOIN_SECONDS, member_id=self._member_id, generation_id=self._generation,
            assignments=[
                {"member_id": member, "assignment": self._share(place, len(members))}
                for place, member in enumerate(members)
            ],
        )  # fmt: skip
        self._check(synced.error_code)
        now = self.client.loop.time()
        mine = sorted(decode_assignment(synced.assignment).get(self._topic, ()))
        self._group.owned += [
            Owned(self._member_id, self._generation, self._key(partition), now) for partition in mine
        ]
        self._readers = {partition: self._reader(partition) for partition in mine}

    def _share(self, place: int, members: int) -> bytes:
        mine = frozenset(range(place, self._partitions(), members))
        return encode_assignment({self._topic: mine} if mine else {}, 0)

    def _reader(self, partition: int) -> SimulatedConsumer:
        process = self._process()
        self._group.readers.add(process)
        return SimulatedConsumer(self.client, self._topic, partition, self._history, process=process)

    def _process(self) -> str:
        return f"{self.client.name}-{self._generation}"

    async def _beat(self) -> None:
        alive = await self._ask(
            "heartbeat", 3, REQUEST_SECONDS, member_id=self._member_id, generation_id=self._generation
        )
        if alive.error_code in AGAIN:
            # Another broker may be the coordinator now; a member that reads nothing finds out only by looking it up.
            self._coordinator = None
            return
        self._check(alive.error_code)

    async def _go_away(self) -> None:
        """Leave the group, or go silently: then the others wait for its session to end."""
        random = self.client.random
        if random.random() < 0.5:
            await self._leave()
        self._member_id = ""
        await asyncio.sleep(random.uniform(1.0, 5.0))

    async def _leave(self) -> None:
        await self._ask("leave_group", 2, REQUEST_SECONDS, member_id=self._member_id)

    # -- reading and committing

    async def _take_up(self) -> None:
        """Continue at the group's committed positions."""
        self._committed = {}
        for partition, offset in (await self._positions(self._readers)).items():
            self._committed[partition] = self._readers[partition].position = max(offset, 0)

    async def _positions(self, partitions: Iterable[int]) -> dict[int, int]:
        found = await fetch_positions(self.client, await self._find(), self._group, self._topic, partitions)
        return {int(each.key.rpartition("-")[2]): each.offset for each in found}

    async def _work(self, is_over: Callable[[], bool]) -> None:
        loop, random = self.client.loop, self.client.random
        leaves_at = loop.time() + random.expovariate(1 / _STAYS_SECONDS)
        beats_at = commits_at = loop.time()
        while not is_over():
            for reader in self._readers.values():
                await reader.poll(wait_ms=_POLL_MS)
            if not self._readers:
                await asyncio.sleep(_POLL_MS / 1000)
            if loop.time() >= commits_at:
                commits_at = loop.time() + _COMMIT_SECONDS
                await self._commit()
            if loop.time() >= beats_at:
                beats_at = loop.time() + _BEAT_SECONDS
                await self._beat()
            if loop.time() >= leaves_at:
                await self._go_away()
                return

    async def _commit(self) -> None:
        for partition, reader in self._readers.items():
            # Repeat until the outcome is known: an earlier commit must not overwrite a later one.
            while reader.position > self._committed[partition]:
                if await self._commit_one(partition, reader.position):
                    self._committed[partition] = reader.position

    async def _commit_one(self, partition: int, offset: int) -> bool:
        loop = self.client.loop
        start, end, outcome = loop.time(), inf, Outcome.UNKNOWN
        try:
            code = await self._send_commit(partition, offset)
            end = loop.time()
            if code == ErrorCode.NONE:
                outcome = Outcome.OK
        finally:
            self._group.commits.append(
                Commit(self._generation, self._key(partition), offset, start, end, outcome)
            )
        if outcome is not Outcome.OK:
            self._coordinator = None
            if code not in AGAIN:
                self._check(code)
            await self._pause()
        return outcome is Outcome.OK

    async def _send_commit(self, partition: int, offset: int) -> ErrorCode:
        return await self._commit_at(7, partition, offset)

    async def _commit_at(self, version: int, partition: int, offset: int) -> ErrorCode:
        reply = await self._ask(
            "offset_commit", version, REQUEST_SECONDS,
            member_id=self._member_id, generation_id_or_member_epoch=self._generation,
            topics=[{
                "name": self._topic,
                "partitions": [{"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}],
            }],
        )  # fmt: skip
        return ErrorCode(reply.topics[0].partitions[0].error_code)

    # -- the coordinator

    def _key(self, partition: int) -> str:
        return f"{self._topic}-{partition}"

    def _check(self, code: int) -> None:
        if code == ErrorCode.NONE:
            return
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        raise _Over(ErrorCode(code).name)

    async def _find(self) -> Address:
        if self._coordinator is None:
            self._coordinator = await find_coordinator(self.client, self._group.group_id)
        return self._coordinator

    async def _ask(self, name: str, version: int, seconds: float, **fields: Any) -> Any:
        address = await self._find()
        return await self.client.call(
            address, name, version, seconds, group_id=self._group.group_id, **fields
        )


async def find_coordinator(client: SimulatedClient, group_id: str) -> Address:
    found = await client.call(client.any_node(), "find_coordinator", 2, REQUEST_SECONDS, key=group_id)
    if found.error_code != ErrorCode.NONE:
        raise NoAnswer(f"no coordinator: {ErrorCode(found.error_code).name}")
    return found.host, found.port


async def fetch_positions(
    client: SimulatedClient, coordinator: Address, group: GroupHistory, topic: str, partitions: Any
) -> list[Position]:
    """The committed positions; NoAnswer if they are not available now."""
    start = client.loop.time()
    reply = await client.call(
        coordinator, "offset_fetch", 5, REQUEST_SECONDS,
        group_id=group.group_id, topics=[{"name": topic, "partition_indexes": list(partitions)}],
    )  # fmt: skip
    errors = [reply.error_code, *(each.error_code for found in reply.topics for each in found.partitions)]
    if any(errors):
        raise NoAnswer(f"no positions: {max(errors)}")
    found = [
        Position(f"{topic}-{each.partition_index}", each.committed_offset, start, client.loop.time())
        for found in reply.topics
        for each in found.partitions
    ]
    group.positions += found
    return found
