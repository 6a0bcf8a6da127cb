"""A log's directory: its identity, and the small files beside the records, which the next flush writes."""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from millstream.runtime.disk import Disk
from millstream.storage.begun import mark_begun
from millstream.storage.flush import OwnDirectory, Unsynced
from millstream.storage.identity import Identity
from millstream.storage.layout import (
    CUT_FILE,
    CUT_NOTE,
    DROPPED_SUFFIX,
    EPOCHS_FILE,
    GAPS_SUFFIX,
    IDENTITY_FILE,
    START_OFFSET_FILE,
    encode_gap,
    encode_start_offset,
    parent_directories,
)
from millstream.storage.leader_epochs import LeaderEpochs
from millstream.storage.log_health import LogGone


class LogDirectory:
    """Created with the first append, so that ten thousand empty logs cost nothing."""

    __slots__ = ("_disk", "_path", "_unsynced", "identity", "ownership")

    def __init__(self, disk: Disk, path: str, identity: Identity, unsynced: Unsynced) -> None:
        self._disk = disk
        self._path = path
        self._unsynced = unsynced
        self.identity = identity
        self.ownership = OwnDirectory()

    def make(self, epochs: LeaderEpochs, *, is_doubtful: bool) -> None:
        """Create the directory unless it exists."""
        identity = f"{self._path}/{IDENTITY_FILE}"
        if self._disk.exists(identity):
            return
        self._disk.make_dirs(self._path)
        parents = parent_directories(self._path)
        begun = mark_begun(self._disk, parents[-1], self._path, self.identity)
        if is_doubtful:
            # So far the missing directory showed the doubt.
            self._disk.write_atomically(f"{self._path}/{CUT_FILE}", CUT_NOTE)
        self._disk.write_atomically(identity, self.identity.encode(), durable=False)
        self._note_identity()
        if epochs.entries:
            # Noted by a leader before its first write.
            self.note_epochs(epochs)
        self._unsynced.directories.update((*parents, begun))

    def note_epochs(self, epochs: LeaderEpochs) -> None:
        self._unsynced.small_files[f"{self._path}/{EPOCHS_FILE}"] = epochs.encode()

    def note_start(self, log_start_offset: int) -> None:
        self._unsynced.small_files[f"{self._path}/{START_OFFSET_FILE}"] = encode_start_offset(
            log_start_offset
        )

    def _note_identity(self) -> None:
        self._unsynced.small_files[f"{self._path}/{IDENTITY_FILE}"] = self.identity.encode()

    def note_early_acknowledgements(self, *, are_made: bool) -> None:
        """Have the next flush say whether records are acknowledged before they are flushed."""
        self.identity = replace(self.identity, acknowledges_early=are_made)
        self._note_identity()

    def remove(self, name: str) -> None:
        """Have the next flush remove the file."""
        self._unsynced.garbage.append(f"{self._path}/{name}")

    def keep(self, name: str) -> None:
        """Take back `remove`: the file is needed again."""
        path = f"{self._path}/{name}"
        self._unsynced.garbage = [each for each in self._unsynced.garbage if each != path]

    def leave_word(self, base_offset: int) -> None:
        """In a thread: keep the deleted segment's file, renamed, as a marker until the log's new start can be written.

        The empty file takes no room; the next flush that has room writes the start and removes the file.
        """
        path = f"{self._path}/{base_offset:020d}{DROPPED_SUFFIX}"

        def empty() -> None:
            self._disk.sync_dir(self._path)
            if self._disk.exists(path):
                file = self._disk.open(path)
                try:
                    file.truncate(0)
                finally:
                    file.close()

        self.write_by_name(empty)

    def note_gap(self, base_offset: int, gap_end: int) -> None:
        """Have the next flush say where the last gap of this segment ends."""
        path = f"{self._path}/{base_offset:020d}{GAPS_SUFFIX}"
        self._unsynced.small_files[path] = encode_gap(gap_end)

    def begin_rewrite(self, bases: Sequence[int]) -> int:
        """Announce that these segments' files will be replaced; returns the new file's number.

        After the next flush no earlier checkpoint is valid for them. Segments that were merged into one of them get
        the number too: of all with one number, only the first has a file.
        """
        number, earlier = self.identity.rewrites + 1, self.identity.rewritten
        replaced = {earlier[base] for base in bases if base in earlier}
        merged = [base for base, its_number in earlier.items() if its_number in replaced]
        rewritten = {**earlier, **dict.fromkeys((*merged, *bases), number)}
        self.identity = replace(self.identity, rewrites=number, rewritten=rewritten)
        self._note_identity()
        return number

    def described(self, numbers: Mapping[int, int]) -> None:
        """A checkpoint with these segment numbers, by base offset, is on disk: drop those that it covers."""
        unknown = {
            base: number
            for base, number in self.identity.rewritten.items()
            if numbers.get(base, number) != number
        }
        self.identity = replace(self.identity, rewritten=unknown)

    def write_by_name(self, work: Callable[[], None]) -> None:
        """In a thread: run `work` with exclusive access to the directory; LogGone when the log was removed."""
        with self.ownership as is_ours:
            if is_ours:
                work()
        if not self.ownership.is_ours:
            raise LogGone
