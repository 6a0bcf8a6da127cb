"""Opens the quorum's log in a data directory, and checks that the directory belongs to this node."""

import os.path

import msgspec

from millstream.cluster.raft.entries import Restored, Snapshot
from millstream.cluster.raft.log import RaftLog
from millstream.cluster.raft.membership import MemberKey
from millstream.cluster.raft.wal import Wal
from millstream.runtime.disk import Disk

DIRECTORY = "__cluster_metadata"


class WrongDataDirectory(Exception):
    """The directory holds another node's data, or data whose metadata is gone."""


class StoredReplica(msgspec.Struct, frozen=True):
    key: MemberKey
    restored: Restored
    wal: Wal

    @property
    def members(self) -> tuple[MemberKey, ...]:
        """The members of the quorum that this node knows; empty while it waits to join."""
        return RaftLog(self.restored.snapshot, self.restored.entries).membership.members


def open_replica(disk: Disk, data_dir: str, node_id: int) -> StoredReplica | None:
    """The stored quorum log, or None if there is none yet.

    Raises WalCorrupt or WrongDataDirectory when the node must not start from this directory.
    """
    opened = Wal.open(disk, os.path.join(data_dir, DIRECTORY))
    if opened is None:
        topics = os.path.join(data_dir, "topics")
        if disk.list_dir(topics):
            raise WrongDataDirectory(
                f"{topics} holds topics but {DIRECTORY} beside it has no log; restore it or use another directory"
            )
        return None
    wal, key, restored = opened
    if key.node_id != node_id:
        wal.close()
        raise WrongDataDirectory(
            f"{data_dir} belongs to broker {key.node_id}; set broker.id to {key.node_id} instead of {node_id},"
            " or use another directory"
        )
    return StoredReplica(key, restored, wal)


def create_replica(disk: Disk, data_dir: str, key: MemberKey, first: Snapshot) -> StoredReplica:
    wal = Wal.create(disk, os.path.join(data_dir, DIRECTORY), key, first)
    return StoredReplica(key, Restored(snapshot=first), wal)
