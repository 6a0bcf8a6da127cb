"""One file of a backup in the making: batches as they come, verified, then synced and given their name."""

from contextlib import suppress

from crc32c import crc32c

from millstream.backup.folder import BackupFolder
from millstream.backup.manifest import SegmentCopy, file_path
from millstream.protocol.record_batch import iter_batches

_TEMPORARY = "copying.tmp"


class SegmentFile:
    def __init__(self, folder: BackupFolder, topic_id: str, index: int, base_offset: int) -> None:
        self._folder = folder
        self._topic_id = topic_id
        self._index = index
        self._base_offset = base_offset
        self._directory = folder.partition_directory(topic_id, index)
        self._path = f"{self._directory}/{_TEMPORARY}"
        self._file = folder.disk.open(self._path, create=True)
        self._file.truncate(0)
        self.size_bytes = 0
        self._checksum = 0
        self._record_count = 0
        self._first_batch = -1
        self._last_epoch = self._max_timestamp = self._max_producer_id = -1

    def add(self, records: memoryview) -> None:
        """Whole batches; CorruptBatch when one of them is not what it claims to be."""
        for _, header in iter_batches(records):
            if self._first_batch < 0:
                self._first_batch = header.base_offset
            self._record_count += header.record_count
            self._last_epoch = max(self._last_epoch, header.leader_epoch)
            self._max_timestamp = max(self._max_timestamp, header.max_timestamp)
            self._max_producer_id = max(self._max_producer_id, header.producer_id)
        self._file.pwrite([records], self.size_bytes)
        self._checksum = crc32c(records, self._checksum)
        self.size_bytes += len(records)

    def finish(self, end_offset: int) -> SegmentCopy:
        """The file is on disk under the name that says what it is."""
        segment = SegmentCopy(
            self._base_offset,
            end_offset,
            self.size_bytes,
            self._checksum,
            self._record_count,
            self._first_batch,
            self._last_epoch,
            self._max_timestamp,
            self._max_producer_id,
        )
        self._file.sync()
        self._file.close()
        disk = self._folder.disk
        target = f"{self._folder.path}/{file_path(self._topic_id, self._index, segment)}"
        # An equal file may be there, of a backup that was removed: one content has one name.
        disk.rename(self._path, target)
        disk.sync_dir(self._directory)
        return segment

    def discard(self) -> None:
        with suppress(OSError):
            self._file.close()
            self._folder.disk.unlink(self._path)
