"""Writes a partition's directory from batches, with their offsets; recovery makes the indexes."""

from contextlib import suppress

from millstream.protocol.record_batch import BatchHeader
from millstream.runtime.disk import Disk, File
from millstream.storage.identity import Identity
from millstream.storage.layout import (
    EPOCHS_FILE,
    IDENTITY_FILE,
    LOG_SUFFIX,
    START_OFFSET_FILE,
    encode_start_offset,
)
from millstream.storage.leader_epochs import LeaderEpochs
from millstream.storage.segment import MAX_RELATIVE_OFFSET

_BUFFER_BYTES = 1 << 20


class LogWriter:
    def __init__(
        self, disk: Disk, directory: str, topic_id: bytes, log_start_offset: int, segment_bytes: int
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._topic_id = topic_id
        self._log_start_offset = log_start_offset
        self._segment_bytes = segment_bytes
        self._file: File | None = None
        self._buffered: list[bytes] = []
        self._buffered_bytes = 0
        self._base_offset = 0
        self._size = 0
        self._epochs = LeaderEpochs()
        self.next_offset = -1
        self.record_count = 0
        self.size_bytes = 0
        self.max_producer_id = -1

    @property
    def last_epoch(self) -> int:
        return self._epochs.latest

    def append(self, header: BatchHeader, data: memoryview) -> None:
        if self._file is None:
            self._disk.make_dirs(self._directory)
            # A batch may begin before the log's start; compaction may have left nothing at the start.
            self._begin(min(header.base_offset, self._log_start_offset))
        elif (
            self._size + self._buffered_bytes + len(data) > self._segment_bytes
            or header.last_offset - self._base_offset > MAX_RELATIVE_OFFSET
        ):
            self._end_segment()
            self._begin(header.base_offset)
        if header.leader_epoch > self._epochs.latest:
            self._epochs.assign(header.leader_epoch, header.base_offset)
        self._buffered.append(bytes(data))
        self._buffered_bytes += len(data)
        if self._buffered_bytes >= _BUFFER_BYTES:
            self._flush()
        self.next_offset = header.last_offset + 1
        self.record_count += header.record_count
        self.size_bytes += len(data)
        self.max_producer_id = max(self.max_producer_id, header.producer_id)

    def finish(self) -> None:
        """A log without records that does not begin at 0 gets an empty segment, which records its end."""
        if self._file is None:
            if self._log_start_offset == 0:
                return
            self._disk.make_dirs(self._directory)
            self._begin(self._log_start_offset)
        self._end_segment()
        small = {IDENTITY_FILE: Identity(self._topic_id).encode(), EPOCHS_FILE: self._epochs.encode()}
        if self._log_start_offset > 0:
            small[START_OFFSET_FILE] = encode_start_offset(self._log_start_offset)
        for name, data in small.items():
            # The whole data directory is synced at the end.
            self._disk.write_atomically(f"{self._directory}/{name}", data, durable=False)

    def discard(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()

    def _begin(self, base_offset: int) -> None:
        self._base_offset, self._size = base_offset, 0
        self._file = self._disk.open(f"{self._directory}/{base_offset:020d}{LOG_SUFFIX}", create=True)

    def _flush(self) -> None:
        if self._file is not None and self._buffered:
            self._size += self._file.pwrite([b"".join(self._buffered)], self._size)
            self._buffered.clear()
            self._buffered_bytes = 0

    def _end_segment(self) -> None:
        if self._file is not None:
            self._flush()
            self._file.close()
