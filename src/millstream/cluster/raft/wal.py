"""Term, vote, entries and snapshots on disk. Every method that writes blocks and belongs in a thread, one at a time."""

import os.path
from contextlib import suppress

from millstream.cluster.raft.entries import Entry, HardState, Restored, Snapshot
from millstream.cluster.raft.membership import MemberKey
from millstream.cluster.raft.wal_files import Found, files_of, find, snapshot_path, wal_path
from millstream.cluster.raft.wal_frames import encode_frame
from millstream.cluster.raft.wal_records import encode_snapshot, encode_start, encode_write
from millstream.runtime.disk import Disk, File

# Reserved in the file on a node of several, so that with a full disk it can still store new terms and leaders.
_RESERVED_BYTES = 1 << 20


class WriteRefused(Exception):
    """Nothing was written, for example because the disk is full; the write can be retried."""


class WalBroken(Exception):
    """An fsync failed: the disk's content is unknown until a restart, so this member must stop."""


class Wal:
    __slots__ = (
        "_directory",
        "_disk",
        "_end",
        "_file",
        "_is_broken",
        "_is_littered",
        "_member",
        "_reserved",
        "_sequence",
    )

    def __init__(self, disk: Disk, directory: str, file: File, found: Found) -> None:
        self._disk = disk
        self._directory = directory
        self._file = file
        self._member = found.member
        self._end = found.end
        self._sequence = found.next_sequence
        self._is_broken = False
        self._is_littered = False
        self._reserved = 0
        self._reserve(found.state.snapshot)

    @classmethod
    def open(cls, disk: Disk, directory: str) -> "tuple[Wal, MemberKey, Restored] | None":
        """The log, its owner and its content; None if none was ever created, WalCorrupt if it cannot be trusted."""
        found = find(disk, directory)
        if found is None:
            return None
        file = disk.open(found.path)
        try:
            # Cut a torn tail, and sync what was read before anyone acts on it.
            if file.size() > found.end:
                file.truncate(found.end)
            file.sync()
            disk.sync_dir(directory)
        except BaseException:
            file.close()
            raise
        wal = cls(disk, directory, file, found)
        wal._remove_others(found.state.snapshot)
        return wal, found.member, found.state

    @classmethod
    def create(cls, disk: Disk, directory: str, member: MemberKey, snapshot: Snapshot) -> "Wal":
        """Create a log durably in an unused directory, from the snapshot that a new quorum starts with.

        A member that joins a quorum starts with the empty snapshot and receives everything from the leader.
        """
        disk.make_dirs(directory)
        disk.sync_dir(os.path.dirname(directory))
        state = Restored(HardState(), snapshot)
        path = _write_start(disk, directory, member, state, 1)
        return cls(disk, directory, disk.open(path), Found(member, state, path, disk.size(path), 2))

    @property
    def size_bytes(self) -> int:
        """The size of the current file, which grows with every write until `start_from` begins another."""
        return self._end

    def write(self, hard_state: HardState, entries: tuple[Entry, ...]) -> None:
        """Return when both are on stable storage; WriteRefused leaves everything as it was."""
        self._require_sound()
        frame = encode_frame(self._sequence, encode_write(hard_state, entries))
        if self._is_littered:
            self._clean()
        try:
            self._file.pwrite([frame], self._end)
        except OSError as error:
            self._is_littered = True
            with suppress(OSError):
                self._file.truncate(self._end)
            raise WriteRefused(f"cannot write {self._file.path}: {error.strerror or error}") from error
        self._sync()
        self._end += len(frame)
        self._sequence += 1
        if 0 < self._reserved < self._end + _RESERVED_BYTES // 2:
            self._reserve_more()

    def _clean(self) -> None:
        """Remove the rest of a failed write: behind a later torn frame it would look like corruption."""
        try:
            self._file.truncate(self._end)
        except OSError as error:
            raise WriteRefused(f"cannot cut {self._file.path}: {error.strerror or error}") from error
        self._sync()
        self._is_littered = False

    def _sync(self) -> None:
        try:
            self._file.sync()
        except OSError as error:
            self._is_broken = True
            raise WalBroken(
                f"fsync of {self._file.path} failed: {error.strerror or error}; check the disk and restart the node"
            ) from error

    def _reserve(self, snapshot: Snapshot) -> None:
        self._reserved = 0
        if snapshot.membership.members != (self._member,):
            self._reserve_more()

    def _reserve_more(self) -> None:
        with suppress(OSError):
            self._file.allocate(self._end, _RESERVED_BYTES)
        # If there is no room, try again after as many bytes.
        self._reserved = self._end + _RESERVED_BYTES

    def start_from(self, state: Restored) -> None:
        """Start a new file from a snapshot; `state` is complete, including what is on disk already.

        After WriteRefused the log is unchanged and usable.
        """
        self._require_sound()
        try:
            path = _write_start(self._disk, self._directory, self._member, state, self._sequence)
            file = self._disk.open(path)
        except OSError as error:
            self._give_up_start(state)
            raise WriteRefused(
                f"cannot write a snapshot to {self._directory}: {error.strerror or error}"
            ) from error
        self._file.close()
        self._file = file
        self._is_littered = False
        self._end = file.size()
        self._sequence += 1
        self._remove_others(state.snapshot)
        self._reserve(state.snapshot)

    def _give_up_start(self, state: Restored) -> None:
        """Remove the failed new file: the next start would take it for the newest."""
        started = wal_path(self._directory, self._sequence)
        try:
            self._disk.unlink(started + ".tmp")
            self._disk.unlink(snapshot_path(self._directory, state.snapshot.index) + ".tmp")
            self._disk.unlink(started)
            self._disk.sync_dir(self._directory)
        except OSError as error:
            self._is_broken = True
            raise WalBroken(
                f"cannot remove {started}: {error.strerror or error}; check the disk and restart the node"
            ) from error

    def _require_sound(self) -> None:
        if self._is_broken:
            raise WalBroken(f"{self._directory} had a failed fsync; check the disk and restart the node")

    def _remove_others(self, snapshot: Snapshot) -> None:
        keep = {self._file.path, snapshot_path(self._directory, snapshot.index)}
        with suppress(OSError):
            for path in files_of(self._disk, self._directory):
                if path not in keep:
                    self._disk.unlink(path)

    def close(self) -> None:
        self._file.close()


def _write_start(disk: Disk, directory: str, member: MemberKey, state: Restored, sequence: int) -> str:
    snapshot = state.snapshot
    if snapshot.index > 0:
        data = encode_frame(snapshot.index, encode_snapshot(snapshot))
        disk.write_atomically(snapshot_path(directory, snapshot.index), data)
    path = wal_path(directory, sequence)
    disk.write_atomically(path, encode_frame(sequence, encode_start(member, state)))
    return path
