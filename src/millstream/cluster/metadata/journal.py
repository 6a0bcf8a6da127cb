"""The metadata journal on disk: an append-only file of frames and, now and then, a snapshot to start from.

`<20 digits>.snapshot` holds the image before the frame of that sequence number, `<20 digits>.journal`
frames from that number on. A snapshot is made durable first, then a new journal is begun, then older files
go: a crash between any two of these steps leaves frames that the next open skips, never a gap.
"""

import asyncio
import os.path
from collections.abc import Iterable, Sequence
from contextlib import suppress

from millstream.cluster.metadata.frames import encode_frame
from millstream.cluster.metadata.journal_files import Replay, file_name, is_journal_file, replay
from millstream.cluster.metadata.records import MetadataRecord, encode_records
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.disk import Disk, File

SNAPSHOT_AFTER_BYTES = 4 << 20


class Journal:
    """One append or snapshot at a time; the caller serialises."""

    __slots__ = (
        "_directory",
        "_disk",
        "_end",
        "_failure",
        "_file",
        "_sequence",
        "_snapshot_after",
        "_snapshot_at",
    )

    def __init__(self, disk: Disk, directory: str, file: File, found: Replay, snapshot_after: int) -> None:
        self._disk = disk
        self._directory = directory
        self._file = file
        self._end = found.active_end
        self._sequence = found.sequence
        self._snapshot_after = snapshot_after
        self._snapshot_at = snapshot_after
        self._failure: KafkaError | None = None

    @classmethod
    def open(
        cls, disk: Disk, directory: str, snapshot_after: int = SNAPSHOT_AFTER_BYTES
    ) -> "tuple[Journal, list[MetadataRecord]]":
        """The journal ready for appends, and every record in it; JournalCorrupt when it cannot be trusted."""
        disk.make_dirs(directory)
        disk.sync_dir(os.path.dirname(directory))
        found = replay(disk, directory)
        file = disk.open(os.path.join(directory, found.active), create=True)
        try:
            # A torn tail goes; and what was read becomes durable before anyone acts on it.
            if file.size() > found.active_end:
                file.truncate(found.active_end)
            file.sync()
            disk.sync_dir(directory)
        except BaseException:
            file.close()
            raise
        return cls(disk, directory, file, found, snapshot_after), found.records

    async def append(self, records: Sequence[MetadataRecord]) -> None:
        """Return when the records are on stable storage; KAFKA_STORAGE_ERROR when they are refused."""
        if self._failure is not None:
            raise self._failure
        frame = encode_frame(self._sequence, encode_records(records))
        await asyncio.get_running_loop().run_in_executor(None, self._write, frame)
        self._end += len(frame)
        self._sequence += 1

    def _write(self, frame: bytes) -> None:
        try:
            # Longer than expected only when the cut after an earlier failed write failed as well.
            if self._file.size() > self._end:
                self._file.truncate(self._end)
            self._file.pwrite([frame], self._end)
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(self._end)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the metadata change was refused: cannot write {self._file.path}: {error.strerror or error};"
                " it can be tried again when the disk has room",
            ) from error
        try:
            self._file.sync()
        except OSError as error:
            # The kernel may have dropped the dirty pages: only a restart, which asks the disk, can tell.
            self._failure = KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"metadata cannot be changed: fsync of {self._file.path} failed: {error.strerror or error};"
                " check the disk and restart the node",
            )
            raise self._failure from error

    @property
    def snapshot_due(self) -> bool:
        return self._end >= self._snapshot_at and self._failure is None

    async def snapshot(self, image_records: Iterable[MetadataRecord]) -> None:
        """Begin the journal anew from `image_records`, which must be the state after the last append.

        An OSError leaves the journal as it was, to go on with; the next try comes after as many bytes again.
        """
        self._snapshot_at = self._end + self._snapshot_after
        await asyncio.get_running_loop().run_in_executor(None, self._snapshot, image_records)

    def _snapshot(self, image_records: Iterable[MetadataRecord]) -> None:
        frame = encode_frame(self._sequence, encode_records(list(image_records)))
        keep = {file_name(self._sequence, "snapshot"), file_name(self._sequence, "journal")}
        snapshot = os.path.join(self._directory, file_name(self._sequence, "snapshot"))
        try:
            self._disk.write_atomically(snapshot, frame)
        except OSError:
            with suppress(OSError):
                self._disk.unlink(snapshot + ".tmp")
            raise
        fresh = self._disk.open(
            os.path.join(self._directory, file_name(self._sequence, "journal")), create=True
        )
        try:
            self._disk.sync_dir(self._directory)
        except OSError:
            fresh.close()
            raise
        self._file.close()
        self._file = fresh
        self._end = 0
        # A small journal behind a large snapshot would be rewritten too often.
        self._snapshot_at = max(self._snapshot_after, len(frame))
        with suppress(OSError):
            for name in self._disk.list_dir(self._directory):
                if is_journal_file(name) and name not in keep:
                    self._disk.unlink(os.path.join(self._directory, name))

    def close(self) -> None:
        self._failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the node is shutting down")
        self._file.close()
