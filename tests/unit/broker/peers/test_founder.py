"""A promise outlives the node, is for one founder, and ends what the node itself may found."""

from uuid import UUID

import pytest

from millstream.broker.peers.founder import FILE, Promise
from millstream.broker.peers.founding import CannotJoin
from millstream.cluster.raft.membership import MemberKey
from millstream.testing.disk import SimulatedDisk

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
