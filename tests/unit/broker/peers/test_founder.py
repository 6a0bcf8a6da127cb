"""A promise outlives the node, is for one founder, and ends what the node itself may found."""

import asyncio
import errno
from collections.abc import Callable
from uuid import UUID

import pytest

from millstream.broker.peers.founder import FILE, Founder, Promise
from millstream.broker.peers.founding import CannotJoin
from millstream.broker.peers.network import PeerNetwork
from millstream.cluster.founding_messages import AskPromise
from millstream.cluster.raft.membership import MemberKey
from millstream.testing.disk import Fault, Operation, SimulatedDisk

ME, OTHER = (MemberKey(number, UUID(int=number)) for number in (1, 2))


def empty_disk() -> SimulatedDisk:
    disk = SimulatedDisk(1)
    disk.make_dirs("/data")
    disk.sync_dir("/")
    return disk


def test_it_survives_a_loss_of_power() -> None:
    disk = empty_disk()
    Promise(disk, "/data").keep(OTHER)
    disk.restart(power_loss=True)
    assert Promise(disk, "/data").to == OTHER


def test_a_node_founds_only_what_it_has_promised_nobody_else() -> None:
    promise = Promise(empty_disk(), "/data")
    promise.to = OTHER
    assert not promise.claim(ME)
    promise.to = None
    assert promise.claim(ME)
    assert promise.is_claimed


def test_one_that_cannot_be_read_is_named() -> None:
    disk = empty_disk()
    disk.write_atomically(f"/data/{FILE}", b"[")
    with pytest.raises(CannotJoin, match=FILE):
        Promise(disk, "/data")


class _AtOnce:
    async def run(self, job: Callable[[], None]) -> None:
        job()


def test_one_that_could_not_be_written_down_is_written_before_it_is_given() -> None:
    disk = empty_disk()

    async def story() -> None:
        network = PeerNetwork(ME, (), (), None, elapsed=lambda: 0.0)  # type: ignore[arg-type]
        founder = Founder(network, Promise(disk, "/data"), _AtOnce(), 0)  # type: ignore[arg-type]
        asked = AskPromise(OTHER, (ME, OTHER))
        disk.faults.add(Fault(Operation.WRITE, errno.ENOSPC))
        with pytest.raises(OSError, match="No space"):
            await founder.promise(asked)
        assert (await founder.promise(asked)).refusal is None

    asyncio.run(story())
    disk.restart(power_loss=True)
    assert Promise(disk, "/data").to == OTHER
