"""The metadata log as people see it."""

from uuid import UUID

import pytest

from millstream.cluster.metadata.dump import dump_metadata
from millstream.cluster.metadata.records import ClusterCreated, TopicCreated, encode_records
from millstream.cluster.raft.entries import Entry, EntryKind, HardState, first_snapshot
from millstream.cluster.raft.membership import MemberKey, Membership
from millstream.cluster.raft.wal import Wal
from millstream.cluster.raft.wal_files import files_of
from millstream.cluster.raft.wal_frames import WalCorrupt
from millstream.testing.disk import SimulatedDisk

DIRECTORY = "/data/__cluster_metadata"
REPLICA = MemberKey(1, UUID(int=5))


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    snapshot = first_snapshot(Membership((REPLICA,)), encode_records([ClusterCreated("c")]))
    wal = Wal.create(disk, DIRECTORY, REPLICA, snapshot)
    wal.write(HardState(3, REPLICA), ())
    data = encode_records([TopicCreated("events", UUID(int=7)), TopicCreated("orders", UUID(int=8))])
    wal.write(HardState(3, REPLICA), (Entry(2, 3, EntryKind.NOOP), Entry(3, 3, EntryKind.DATA, data)))
    wal.close()
    return disk


def test_every_record_is_shown(disk: SimulatedDisk) -> None:
    snapshot, wal = files_of(disk, DIRECTORY)
    assert [(row.index, row.record) for row in dump_metadata(disk, snapshot)] == [
        (1, "Snapshot"),
        (1, "ClusterCreated"),
    ]
    rows = list(dump_metadata(disk, wal))
    assert [(row.index, row.term, row.record) for row in rows[-4:]] == [
        (-1, 3, "Vote"),
        (2, 3, "Noop"),
        (3, 3, "TopicCreated"),
        (3, 3, "TopicCreated"),
    ]
    assert rows[-1].fields == {"name": "orders", "topic_id": str(UUID(int=8))}


def test_a_damaged_file_is_named(disk: SimulatedDisk) -> None:
    wal = files_of(disk, DIRECTORY)[1]
    disk.flip_bit(wal, 30)
    with pytest.raises(WalCorrupt, match="corrupt at byte 0"):
        list(dump_metadata(disk, wal))
