"""The work of a log's next flush: collected on the event loop, carried out in another thread."""

import msgspec

from millstream.runtime.disk import Disk, File
from millstream.runtime.workers import Mutex
from millstream.storage.layout import START_OFFSET_FILE
from millstream.storage.segment import Segment


class OwnDirectory:
    """A lock on a log's directory. It ends with the log, whose name a new log may then use.

    Threads that open files there by name hold the lock, and stop once the log is removed. Removal does not wait for
    the holder: it renames the directory, so that writes by the old name fail. A new log of the same name waits until
    the lock is free.
    """

    __slots__ = ("_is_ours", "_mutex")

    def __init__(self) -> None:
        self._mutex = Mutex()
        self._is_ours = True

    def __enter__(self) -> bool:
        """Whether anything may be written."""
        self._mutex.acquire()
        return self._is_ours

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        """Suppress errors after the log was removed: its files are no longer needed."""
        self._mutex.release()
        return isinstance(error, OSError) and not self._is_ours

    @property
    def is_ours(self) -> bool:
        return self._is_ours

    @property
    def is_held(self) -> bool:
        return self._mutex.is_held

    def give_up(self) -> None:
        self._is_ours = False

    def wait_until_left(self) -> None:
        with self._mutex:
            pass


class FlushTicket(msgspec.Struct):
    """Everything that was written to a log but not synced when the ticket was created."""

    end_offset: int
    end_position: tuple[int, int]
    end_bytes: int
    own_directory: OwnDirectory
    segments: list[Segment] = msgspec.field(default_factory=list)
    files: list[File] = msgspec.field(default_factory=list)
    sealed: list[Segment] = msgspec.field(default_factory=list)
    small_files: dict[str, bytes] = msgspec.field(default_factory=dict)
    directories: set[str] = msgspec.field(default_factory=set)
    garbage: list[str] = msgspec.field(default_factory=list)
    allows_early: bool = False
    """After this flush the disk says that records may be acknowledged before they are flushed."""
    synced: bool = False
    """The records are on disk; everything after that can be retried."""

    def run(self, disk: Disk) -> None:
        """Block until everything is on stable storage; after an OSError it may not be."""
        for file in self.files:
            file.sync()
        self.synced = True
        with self.own_directory as is_ours:
            if is_ours:
                self._write_small_files(disk)

    def _write_small_files(self, disk: Disk) -> None:
        for segment in self.sealed:
            segment.index.write(disk, durable=True)
            segment.time_index.write(disk, durable=True)
        # The file with the log's start comes first: recovery can cut epochs below it, but cannot restore missing ones.
        for path in sorted(self.small_files, key=lambda path: not path.endswith(START_OFFSET_FILE)):
            disk.write_atomically(path, self.small_files[path])
        for directory in sorted(self.directories):
            disk.sync_dir(directory)
        for path in self.garbage:
            disk.unlink(path)


class Unsynced:
    """Everything written since the last ticket. A segment with unsynced bytes is pinned: its handle stays open."""

    __slots__ = ("directories", "garbage", "sealed", "segments", "small_files")

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.sealed: list[Segment] = []
        self.small_files: dict[str, bytes] = {}
        self.directories: set[str] = set()
        self.garbage: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.segments or self.small_files)

    def mark(self, segment: Segment) -> None:
        if segment not in self.segments:
            segment.pins += 1
            self.segments.append(segment)

    def forget(self, segment: Segment) -> None:
        if segment in self.segments:
            self.segments.remove(segment)
            segment.pins -= 1
        if segment in self.sealed:
            self.sealed.remove(segment)

    def take(
        self, end_offset: int, end_position: tuple[int, int], end_bytes: int, own_directory: OwnDirectory
    ) -> FlushTicket:
        """Move everything, with the pins, into a ticket."""
        ticket = FlushTicket(
            end_offset,
            end_position,
            end_bytes,
            own_directory,
            self.segments,
            [segment.file for segment in self.segments],
            self.sealed,
            self.small_files,
            self.directories,
            self.garbage,
        )
        self.segments, self.sealed, self.small_files = [], [], {}
        self.directories, self.garbage = set(), []
        return ticket

    def drop(self) -> list[Segment]:
        """Discard everything; returns the segments that were pinned."""
        segments, self.segments, self.sealed, self.small_files = self.segments, [], [], {}
        self.directories, self.garbage = set(), []
        return segments

    def put_back(self, ticket: FlushTicket) -> None:
        """Take back a failed ticket; the next one does its work first."""
        for segment in ticket.segments:
            if segment in self.segments:
                segment.pins -= 1
        self.segments = [*ticket.segments, *(each for each in self.segments if each not in ticket.segments)]
        self.sealed = ticket.sealed + self.sealed
        self.small_files = {**ticket.small_files, **self.small_files}
        self.directories |= ticket.directories
        self.garbage = ticket.garbage + self.garbage
