"""The write-ahead log's directory, and how a start reads it.

`<20 digits>.wal` begins with everything known at that frame's sequence number but the state machine, and goes on with
one frame a write; `<20 digits>.snapshot` is the state machine after the entry at that index. Both appear by rename,
whole or not at all, the snapshot before the file that builds on it; older files go last. So the newest `.wal` file
and the snapshot that it names are always enough; other files are left over from a crash.
"""

import os.path
import re

import msgspec

from millstream.cluster.raft.entries import Restored, Snapshot
from millstream.cluster.raft.membership import MemberKey
from millstream.cluster.raft.wal_frames import WalCorrupt, read_frames
from millstream.cluster.raft.wal_records import (
    StoredStart,
    StoredWrite,
    decode_snapshot,
    decode_start,
    decode_write,
    replay,
)
from millstream.runtime.disk import Disk

_NAME = re.compile(r"\d{20}\.(wal|snapshot)(\.tmp)?")


class Found(msgspec.Struct, frozen=True):
    """The state on disk, and the position of the next frame."""

    member: MemberKey
    state: Restored
    path: str
    end: int
    next_sequence: int


def wal_path(directory: str, sequence: int) -> str:
    return os.path.join(directory, f"{sequence:020}.wal")


def snapshot_path(directory: str, index: int) -> str:
    return os.path.join(directory, f"{index:020}.snapshot")


def files_of(disk: Disk, directory: str) -> list[str]:
    """Paths of all files of the write-ahead log, current or left over."""
    names = sorted(name for name in disk.list_dir(directory) if _NAME.fullmatch(name))
    return [os.path.join(directory, name) for name in names]


def find(disk: Disk, directory: str) -> Found | None:
    """The stored log, or None for an unused directory; WalCorrupt when it cannot be trusted."""
    whole = [path for path in files_of(disk, directory) if not path.endswith(".tmp")]
    wals = [path for path in whole if path.endswith(".wal")]
    if not wals:
        if whole and any(int(os.path.basename(path)[:20]) > 1 for path in whole):
            raise WalCorrupt(whole[-1], 0, "there is a snapshot but no write-ahead log beside it")
        return None
    path = wals[-1]
    start, writes, end, sequence = _read_wal(path, _read_from_disk(disk, path))
    hard_state, entries = replay(writes)
    snapshot = _read_snapshot(disk, directory, start, path)
    for place, entry in enumerate(entries, snapshot.index + 1):
        if entry.index != place:
            raise WalCorrupt(path, 0, f"entry {place} is missing, {entry.index} is in its place")
    return Found(start.member, Restored(hard_state, snapshot, entries), path, end, sequence + 1)


def _read_from_disk(disk: Disk, path: str) -> bytes:
    """Bypass the page cache: after a failed fsync it may hold data that is not on disk."""
    file = disk.open(path, read_only=True)
    try:
        file.drop_cache()
        return file.pread(file.size(), 0)
    finally:
        file.close()


def _read_wal(path: str, data: bytes) -> tuple[StoredStart, list[StoredWrite], int, int]:
    start: StoredStart | None = None
    writes: list[StoredWrite] = []
    end, sequence = 0, 0
    for frame in read_frames(path, data):
        try:
            if start is None:
                start = decode_start(frame.payload)
                writes.append(start.write)
            else:
                writes.append(decode_write(frame.payload))
        except msgspec.DecodeError as error:
            raise WalCorrupt(path, frame.position, f"a frame this version cannot read: {error}") from error
        end, sequence = frame.end, frame.sequence
    if start is None:
        raise WalCorrupt(path, 0, "the first frame is damaged")
    return start, writes, end, sequence


def _read_snapshot(disk: Disk, directory: str, start: StoredStart, wal: str) -> Snapshot:
    if start.snapshot_index == 0:
        return Snapshot()
    path = snapshot_path(directory, start.snapshot_index)
    if not disk.exists(path):
        raise WalCorrupt(path, 0, f"the file is missing, and {os.path.basename(wal)} builds on it")
    for frame in read_frames(path, disk.read(path)):
        try:
            snapshot = decode_snapshot(frame.payload)
        except msgspec.DecodeError as error:
            raise WalCorrupt(path, frame.position, f"not a snapshot: {error}") from error
        if (snapshot.index, snapshot.term) != (start.snapshot_index, start.snapshot_term):
            raise WalCorrupt(path, frame.position, f"a snapshot of entry {snapshot.index} in another's place")
        return snapshot
    raise WalCorrupt(path, 0, "the checksum does not match")
