"""Truncation of a log; a crash at any moment leaves the log either unchanged or cut.

    prepare   the marker and the epochs before the cut reach the disk: recovery trusts nothing behind it any more
    apply     files are cut and removed, in one step with the log in memory
    flush     the next flush makes the cut durable, before anything that was appended since
    give up   instead of `apply`: the log stays as it is; a start scans it from the marker on until a checkpoint follows

`prepare` syncs and scans, so it belongs in a thread; `PartitionLog.truncate` applies it on the event loop. A checkpoint
from before the cut claims more synced bytes than there are: cuts are numbered, and a marker with a higher number than
the checkpoint's overrides it.
"""

from collections.abc import Iterator

import msgspec

from millstream.protocol.record_batch import BatchHeader
from millstream.runtime.disk import Disk
from millstream.storage.flush import OwnDirectory
from millstream.storage.layout import (
    EPOCHS_FILE,
    LOG_SUFFIX,
    START_OFFSET_FILE,
    TRUNCATION_FILE,
    encode_start_offset,
    snapshot_path,
    with_checksum,
    without_checksum,
)
from millstream.storage.leader_epochs import LeaderEpochs
from millstream.storage.open_files import OpenFiles
from millstream.storage.producer_state import ProducerStates
from millstream.storage.segment import Segment, SegmentSummary, sound_batches


class TruncationMarker(msgspec.Struct, frozen=True):
    """Where the log was cut; recovery scans for later records."""

    number: int
    log_start_offset: int
    end_offset: int
    position: tuple[int, int]

    def encode(self) -> bytes:
        return with_checksum(msgspec.json.encode(self).decode() + "\n")

    def after(self, earlier: "TruncationMarker | None") -> "TruncationMarker":
        """Both cuts combined, if no checkpoint was written in between; the log may have grown again since."""
        if earlier is None:
            return self
        return TruncationMarker(
            self.number,
            min(self.log_start_offset, earlier.log_start_offset),
            min(self.end_offset, earlier.end_offset),
            min(self.position, earlier.position),
        )


def read_marker(disk: Disk, directory: str) -> TruncationMarker | None:
    """None when the file is damaged: the log was cut at an unknown place."""
    try:
        text = without_checksum(disk.read(f"{directory}/{TRUNCATION_FILE}"))
        return msgspec.json.decode(text, type=TruncationMarker)
    except ValueError:
        return None


class Truncation(msgspec.Struct):
    """A planned cut at `end_offset`. Nothing may be appended to the log until the cut is applied or given up."""

    number: int
    directory: str
    files: OpenFiles
    log_start_offset: int
    end_offset: int
    epochs: LeaderEpochs
    now_ms: int
    index_interval_bytes: int
    own_directory: OwnDirectory
    cut: SegmentSummary | None = None
    """The segment that becomes the last one; None when none is left."""
    position: int = 0
    """The position in that segment at which to cut."""
    earlier_segments: list[SegmentSummary] = msgspec.field(default_factory=list)
    """They are read from the snapshot on to rebuild the producers."""
    snapshot: int | None = None
    earlier: TruncationMarker | None = None
    """Earlier cuts that the checkpoint does not cover."""
    segment: Segment | None = None
    producers: ProducerStates = msgspec.field(default_factory=ProducerStates)

    @property
    def end_position(self) -> tuple[int, int]:
        return (self.cut.base_offset, self.position) if self.cut is not None else (0, 0)

    @property
    def marker(self) -> TruncationMarker:
        own = TruncationMarker(self.number, self.log_start_offset, self.end_offset, self.end_position)
        return own.after(self.earlier)

    def prepare(self, disk: Disk) -> None:
        """Block until the marker of the cut is on disk; the log itself is not touched."""
        if self.cut is not None:
            self._learn(disk, self.cut)
        with self.own_directory as is_ours:
            if is_ours and disk.exists(self.directory):
                self._write_down(disk)

    def _write_down(self, disk: Disk) -> None:
        disk.write_atomically(f"{self.directory}/{TRUNCATION_FILE}", self.marker.encode())
        disk.write_atomically(f"{self.directory}/{EPOCHS_FILE}", self.epochs.encode())
        if self.cut is None:
            start = encode_start_offset(self.log_start_offset)
            disk.write_atomically(f"{self.directory}/{START_OFFSET_FILE}", start)

    def _learn(self, disk: Disk, cut: SegmentSummary) -> None:
        """Build the state in memory after the cut: producers, and the last segment with its indexes."""
        if self.snapshot is not None:
            stored = ProducerStates.decode(disk.read(snapshot_path(self.directory, self.snapshot)))
            if stored is None:
                self.snapshot = None
            else:
                self.producers = stored
        for summary in self.earlier_segments:
            if summary.base_offset >= (self.snapshot or 0):
                for _, header in self._batches(disk, summary, summary.size_bytes):
                    self._see(header)
        if len(self.producers) and self.snapshot != cut.base_offset:
            # Recovery will scan from here on, and a later checkpoint may have removed the snapshots for it.
            with self.own_directory as is_ours:
                if is_ours:
                    path = snapshot_path(self.directory, cut.base_offset)
                    disk.write_atomically(path, self.producers.encode())
            self.snapshot = cut.base_offset
        left = SegmentSummary(
            cut.base_offset, end_offset=cut.base_offset, created_ms=cut.created_ms, compacted=cut.compacted
        )
        self.segment = segment = Segment(self.files, self.directory, left, stored=False)
        for position, header in self._batches(disk, cut, self.position):
            left.size_bytes = position
            segment.note_batch(
                header, header.base_offset, header.max_timestamp, position, self.index_interval_bytes
            )
            self._see(header)
        if left.size_bytes == self.position:
            # Not behind a gap: the leader may have records where a batch with a rotten offset made this log seem to.
            self.end_offset = max(left.end_offset, self.log_start_offset)
            self.epochs.truncate_from_end(self.end_offset)
        left.size_bytes, left.end_offset = self.position, self.end_offset
        segment.index.dirty = segment.time_index.dirty = True

    def _see(self, header: BatchHeader) -> None:
        if header.producer_id >= 0 and not header.is_control:
            self.producers.update(header, header.base_offset, self.now_ms)

    def _batches(self, disk: Disk, summary: SegmentSummary, end: int) -> Iterator[tuple[int, BatchHeader]]:
        file = disk.open(f"{self.directory}/{summary.base_offset:020d}{LOG_SUFFIX}", read_only=True)
        try:
            for position, header, _ in sound_batches(file, msgspec.structs.replace(summary, size_bytes=end)):
                yield position, header
        finally:
            file.close()
