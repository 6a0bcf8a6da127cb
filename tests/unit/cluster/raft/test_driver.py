"""Replicas on a real event loop: real threads and files, messages handed over in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from uuid import UUID, uuid4

import pytest

from millstream.cluster.raft.driver import Driver
from millstream.cluster.raft.entries import Entry, Snapshot, first_snapshot
from millstream.cluster.raft.errors import NotLeader, OutcomeUnknown
from millstream.cluster.raft.membership import Change, ChangeKind, MemberKey, Membership
from millstream.cluster.raft.messages import Message
from millstream.cluster.raft.wal import Wal, WalBroken, WriteRefused
from millstream.runtime.disk import Disk, SystemDisk
from millstream.runtime.workers import Workers
from millstream.testing.disk import Fault, Operation, SimulatedDisk


class Words:
    """A state machine that remembers every word."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.turns: list[int] = []
        """How many were applied before the loop could do anything else."""
        self._turn: int | None = None

    def apply(self, entries: Sequence[Entry]) -> list[int]:
        if self._turn is None:
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._turn = (self._turn or 0) + len(entries)
        results = []
        for entry in entries:
            self.words.append(entry.data.decode())
            results.append(len(self.words))
        return results

    def _end_turn(self) -> None:
        self.turns.append(self._turn or 0)
        self._turn = None

    def restore(self, data: bytes) -> None:
        self.words = data.decode().split()

    def snapshot(self) -> Callable[[], bytes]:
        words = list(self.words)
        return lambda: " ".join(words).encode()


class Switchboard:
    def __init__(self) -> None:
        self.drivers: dict[MemberKey, Driver] = {}

    def send(self, message: Message) -> None:
        asyncio.get_running_loop().call_soon(self._deliver, message)

    def _deliver(self, message: Message) -> None:
        driver = self.drivers.get(message.to)
        if driver is not None:
            driver.receive(message)


class Ears:
    def __init__(self) -> None:
        self.leads, self.follows = asyncio.Event(), asyncio.Event()
        self.failures: list[BaseException] = []
        self.refused_writes = 0

    def on_leadership(self, term: int, leader: MemberKey | None, *, is_mine: bool) -> None:
        for event, is_so in ((self.leads, is_mine), (self.follows, not is_mine)):
            if is_so:
                event.set()
            else:
                event.clear()

    def on_write_refused(self) -> None:
        self.refused_writes += 1

    def on_failure(self, error: BaseException) -> None:
        self.failures.append(error)


class Member:
    def __init__(
        self, disk: Disk, directory: str, key: MemberKey, first: Snapshot, board: Switchboard
    ) -> None:
        opened = Wal.open(disk, directory)
        if opened is None:
            Wal.create(disk, directory, key, first).close()
            opened = Wal.open(disk, directory)
        assert opened is not None
        wal, self.key, restored = opened
        self.machine, self.ears, self._board = Words(), Ears(), board
        self.workers = Workers(asyncio.get_running_loop(), 1, "raft-test")
        self.driver = Driver(
            self.key,
            restored,
            wal,
            self.machine,
            board,
            self.workers,
            self.ears,
            jitter=Random(key.node_id).randrange,
            new_id=uuid4,
            tick_ms=10,
            snapshot_after_bytes=2000,
        )
        board.drivers[self.key] = self.driver
        self.driver.start()

    def stop(self) -> None:
        self._board.drivers.pop(self.key, None)
        self.driver.close()
        self.workers.close()


def keys(count: int) -> list[MemberKey]:
    return [MemberKey(number, UUID(int=number)) for number in range(1, count + 1)]


@asynccontextmanager
async def quorum(path: Path, count: int) -> AsyncIterator[tuple[Switchboard, dict[MemberKey, Member]]]:
    board = Switchboard()
    first = first_snapshot(Membership(tuple(keys(count))))
    members = {key: Member(SystemDisk(), f"{path}/{key.node_id}", key, first, board) for key in keys(count)}
    try:
        yield board, members
    finally:
        for member in members.values():
            member.stop()


async def leader_of(members: dict[MemberKey, Member]) -> Member:
    async with asyncio.timeout(90):
        waits = [asyncio.create_task(member.ears.leads.wait()) for member in members.values()]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
    return next(member for member in members.values() if member.ears.leads.is_set())


def run(story: Callable[[], object]) -> None:
    asyncio.run(story())  # type: ignore[arg-type]


def test_much_at_once_is_applied_in_several_turns(tmp_path: Path) -> None:
    async def story() -> None:
        async with quorum(tmp_path, 1) as (_, members):
            member = await leader_of(members)
            words = [bytes([97 + number]) * 30_000 for number in range(20)]
            await asyncio.gather(*(member.driver.propose(word) for word in words))
            assert member.machine.words == [word.decode() for word in words]
            assert max(member.machine.turns) <= 4, "64 KB in one turn, and perhaps the leader's first entry"

    run(story)


def test_a_single_node_leads_commits_and_remembers(tmp_path: Path) -> None:
    async def story() -> None:
        async with quorum(tmp_path, 1) as (_, members):
            member = await leader_of(members)
            assert [await member.driver.propose(word) for word in (b"a", b"b")] == [1, 2]
            assert await member.driver.read_barrier() == member.driver.status().commit_index
        async with quorum(tmp_path, 1) as (_, members):
            member = await leader_of(members)
            assert member.machine.words == ["a", "b"]
            assert await member.driver.propose(b"c") == 3

    run(story)


def test_proposals_that_wait_share_a_write_and_snapshots_bound_the_log(tmp_path: Path) -> None:
    words = [f"word-{number}" for number in range(300)]

    async def story() -> None:
        async with quorum(tmp_path, 1) as (_, members):
            member = await leader_of(members)
            for start in range(0, 300, 50):
                part = words[start : start + 50]
                await asyncio.gather(*(member.driver.propose(word.encode()) for word in part))
        files = sorted(path.name for path in (tmp_path / "1").iterdir())
        assert [name.split(".")[1] for name in files] in (["snapshot", "wal"], ["wal", "snapshot"])
        assert files[0] > "00000000000000000001"
        async with quorum(tmp_path, 1) as (_, members):
            member = await leader_of(members)
            assert member.machine.words == words

    run(story)


def test_three_nodes_agree_and_go_on_without_their_leader(tmp_path: Path) -> None:
    async def story() -> None:
        async with quorum(tmp_path, 3) as (_, members), asyncio.timeout(90):
            first = await leader_of(members)
            await first.driver.propose(b"a")
            followers = [member for member in members.values() if member is not first]
            with pytest.raises(NotLeader) as caught:
                await followers[0].driver.propose(b"refused")
            assert caught.value.leader == first.key
            await followers[0].driver.read_barrier()
            assert followers[0].machine.words == ["a"]
            first.stop()
            del members[first.key]
            second = await leader_of(members)
            await second.driver.propose(b"b")
            for member in members.values():
                await member.driver.read_barrier()
                assert member.machine.words == ["a", "b"]

    run(story)


def test_leadership_moves_and_a_member_joins(tmp_path: Path) -> None:
    async def story() -> None:
        async with quorum(tmp_path, 2) as (board, members), asyncio.timeout(90):
            first = await leader_of(members)
            await first.driver.propose(b"a")
            other = next(key for key in members if key != first.key)
            first.driver.transfer_leadership(other)
            await members[other].ears.leads.wait()
            leader = members[other]
            joining = MemberKey(9, UUID(int=9))
            members[joining] = Member(SystemDisk(), f"{tmp_path}/9", joining, Snapshot(), board)
            await leader.driver.change_membership(Change(ChangeKind.ADD_LEARNER, joining))
            await members[joining].driver.read_barrier()
            assert members[joining].machine.words == ["a"]
            await leader.driver.change_membership(Change(ChangeKind.PROMOTE, joining))
            assert joining in leader.driver.status().membership.voters

    run(story)


def test_a_failed_fsync_silences_the_replica_and_tells_those_who_wait() -> None:
    async def story() -> None:
        disk = SimulatedDisk()
        disk.make_dirs("/data")
        member = Member(
            disk, "/data/quorum", keys(1)[0], first_snapshot(Membership(tuple(keys(1)))), Switchboard()
        )
        try:
            async with asyncio.timeout(90):
                await member.ears.leads.wait()
                disk.faults.add(Fault(Operation.SYNC))
                with pytest.raises(WalBroken):
                    await member.driver.propose(b"x")
            assert [type(failure) for failure in member.ears.failures] == [WalBroken]
            with pytest.raises(WalBroken):
                await member.driver.propose(b"y")
        finally:
            member.stop()

    run(story)


def test_an_only_replica_takes_back_what_a_full_disk_refused() -> None:
    async def story() -> None:
        disk = SimulatedDisk()
        disk.make_dirs("/data")
        member = Member(
            disk, "/data/quorum", keys(1)[0], first_snapshot(Membership(tuple(keys(1)))), Switchboard()
        )
        try:
            async with asyncio.timeout(90):
                await member.ears.leads.wait()
                disk.capacity_bytes = disk.used_bytes()
                refused = [member.driver.propose(word) for word in (b"x", b"y")]
                outcomes = await asyncio.gather(*refused, return_exceptions=True)
                assert [type(outcome) for outcome in outcomes] == [WriteRefused, WriteRefused]
                disk.capacity_bytes = None
                assert await member.driver.propose(b"z") == 1
                assert member.machine.words == ["z"]
                assert not member.ears.follows.is_set()
        finally:
            member.stop()

    run(story)


def test_a_full_disk_costs_leadership_where_others_can_lead() -> None:
    async def story() -> None:
        board, first = Switchboard(), first_snapshot(Membership(tuple(keys(3))))
        disks = {key: SimulatedDisk() for key in keys(3)}
        for disk in disks.values():
            disk.make_dirs("/data")
        members = {key: Member(disks[key], "/data/quorum", key, first, board) for key in keys(3)}
        try:
            async with asyncio.timeout(90):
                leader = await leader_of(members)
                disk = disks[leader.key]
                disk.capacity_bytes = disk.used_bytes()
                # The others have it, so it is committed all the same; here it is applied when there is room.
                proposal = asyncio.create_task(leader.driver.propose(b"x"))
                await leader.ears.follows.wait()
                await leader_of({key: each for key, each in members.items() if each is not leader})
                disk.capacity_bytes = None
                assert await proposal == 1
        finally:
            for member in members.values():
                member.stop()

    run(story)


def test_closing_tells_those_who_wait_that_the_outcome_is_unknown(tmp_path: Path) -> None:
    async def story() -> None:
        async with quorum(tmp_path, 2) as (board, members):
            leader = await leader_of(members)
            board.drivers.clear()
            proposal = asyncio.create_task(leader.driver.propose(b"x"))
            await asyncio.sleep(0)
            leader.driver.close()
            with pytest.raises(OutcomeUnknown):
                await proposal

    run(story)
