"""One partition's log: appends of producers' and leaders' batches, and truncation on a follower."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import (
    HEADER_SIZE,
    PREFIX_SIZE,
    BatchHeader,
    CorruptBatch,
    read_header,
    stamp,
    stamp_append_time,
)
from millstream.runtime.disk import Buffer
from millstream.runtime.invariant import invariant
from millstream.storage.layout import (
    GAPS_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TRUNCATION_FILE,
    encode_gap,
)
from millstream.storage.leader_epochs import LeaderEpochs
from millstream.storage.local_log import LocalLog
from millstream.storage.producer_state import ProducerStates
from millstream.storage.segment import Segment
from millstream.storage.truncation import Truncation

MOST_BEGUN = 20
"""Segments that a call of `append_replicated` begins: a client chooses how small they are."""


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool


class PartitionLog(LocalLog):
    # -- producers' batches

    def append(self, view: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int) -> Appended:
        """Stamp and write one validated batch of a producer."""
        if self.health.offline is not None:
            raise self.health.offline
        if header.batch_length + PREFIX_SIZE > self.config.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the batch has {header.size_bytes} bytes, max.message.bytes is {self.config.max_message_bytes}",
            )
        if header.producer_id >= 0:
            written = self.producers.check(header)
            if written is not None:
                return Appended(written.base_offset, written.last_offset, -1, duplicate=True)
        base_offset = self.log_end_offset
        stamp(view, 0, base_offset, leader_epoch)
        append_time = -1
        max_timestamp = header.max_timestamp
        if self.config.message_timestamp_type == "LogAppendTime":
            stamp_append_time(view, 0, header, now_ms)
            append_time = max_timestamp = now_ms
        elif max_timestamp >= 0:
            self._check_timestamps(header, now_ms)
        self._write(view, header, base_offset, leader_epoch, max_timestamp, now_ms)
        return Appended(base_offset, self.log_end_offset - 1, append_time, duplicate=False)

    def _write(
        self,
        data: Buffer,
        header: BatchHeader,
        base_offset: int,
        leader_epoch: int,
        max_timestamp: int,
        now_ms: int,
    ) -> None:
        last_offset = base_offset + header.last_offset_delta
        try:
            segment = self._segment_for(header, last_offset, max_timestamp, now_ms)
            if leader_epoch > self.epochs.latest:
                self.begin_epoch(leader_epoch, base_offset)
            segment.append(data, header, base_offset, max_timestamp, self.config.index_interval_bytes)
        except OSError as error:
            failure = self.health.write_failed(error)
            self.producers.refuse(header, failure)
            raise failure from error
        self._unsynced.mark(segment)
        if header.producer_id >= 0:
            self.producers.update(header, base_offset, now_ms)
        self.log_end_offset = last_offset + 1
        self._count(header.record_count, header.batch_length + PREFIX_SIZE)

    def _check_timestamps(self, header: BatchHeader, now_ms: int) -> None:
        config = self.config
        if (
            header.max_timestamp - now_ms > config.message_timestamp_after_max_ms
            or now_ms - header.base_timestamp > config.message_timestamp_before_max_ms
        ):
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamps {header.base_timestamp} to {header.max_timestamp} are out of range at {now_ms}: see "
                "message.timestamp.before.max.ms and message.timestamp.after.max.ms",
            )

    # -- a leader's batches

    def append_replicated(self, data: memoryview, headers: Sequence[BatchHeader], now_ms: int) -> int:
        """Write the leader's batches, with verified checksums, unchanged; returns how many.

        Stops where more segments begin than one turn of the loop may make, and one flush may have open.
        CorruptBatch if their offsets or epochs, which no checksum covers, go backwards. A leader that has compacted
        leaves gaps between offsets.
        """
        self.health.require_online()
        expected, epoch = self.log_end_offset, self.epochs.latest
        at = 0
        for header in headers:
            if header.base_offset < expected or header.last_offset_delta < 0 or header.leader_epoch < epoch:
                raise CorruptBatch(
                    f"the leader sent offset {header.base_offset} of epoch {header.leader_epoch} where"
                    f" {expected} of epoch {epoch} or later was expected",
                    at,
                )
            expected, epoch = header.last_offset + 1, header.leader_epoch
            at += header.size_bytes
        first = start = at = begun = 0
        for number, header in enumerate(headers):
            size = at - start + header.size_bytes
            if number > first and (
                self.segments.is_full(self.config, size, header.last_offset, header.max_timestamp, now_ms)
                or header.leader_epoch > headers[number - 1].leader_epoch
            ):
                self._write_run(data[start:at], headers[first:number], now_ms)
                first, start = number, at
            if number == first:
                if begun >= MOST_BEGUN:
                    return number
                # Creates the segment for this run.
                count = len(self.segments)
                self._prepare_segment(header, now_ms)
                begun += len(self.segments) - count
            at += header.size_bytes
        if first < len(headers):
            self._write_run(data[start:at], headers[first:], now_ms)
        return len(headers)

    def _prepare_segment(self, header: BatchHeader, now_ms: int) -> None:
        try:
            self._segment_for(header, header.last_offset, header.max_timestamp, now_ms)
            if header.leader_epoch > self.epochs.latest:
                self.begin_epoch(header.leader_epoch, header.base_offset)
        except OSError as error:
            raise self.health.write_failed(error) from error

    def _write_run(self, data: memoryview, headers: Sequence[BatchHeader], now_ms: int) -> None:
        """Append batches of one epoch to the last segment in one write."""
        segment = self.segments[-1]
        try:
            segment.append_run(data, headers, self.config.index_interval_bytes)
        except OSError as error:
            raise self.health.write_failed(error) from error
        self._unsynced.mark(segment)
        expected = self.log_end_offset
        for header in headers:
            if header.base_offset > expected:
                segment.summary.compacted = True
                self._unsynced.small_files[segment.path + GAPS_SUFFIX] = encode_gap(header.base_offset)
            if header.producer_id >= 0 and not header.is_control:
                self.producers.update(header, header.base_offset, now_ms)
            expected = header.last_offset + 1
        self.log_end_offset = expected
        self._count(sum(header.record_count for header in headers), len(data))

    # -- the end of the log

    @property
    def is_flushing(self) -> bool:
        return self._flushing is not None

    def begin_truncation(self, offset: int, now_ms: int, *, may_cut_more: bool = False) -> Truncation:
        """A plan to cut the log at `offset`, or before the batch that contains it.

        If `offset` is outside the log, the log restarts there. If damage hides the place, the log is cut before the
        damage if no replica needs the records between (`may_cut_more`); otherwise CorruptBatch.
        """
        restart = Truncation(
            self.truncations + 1,
            self.directory,
            self.files,
            offset,
            offset,
            LeaderEpochs(),
            now_ms,
            self.config.index_interval_bytes,
            self.place.ownership,
            earlier=self._marker,
        )
        # A checkpoint has scheduled this file for removal; the cut writes it again.
        self.place.keep(TRUNCATION_FILE)
        at = self.segments.find(offset)
        if at < 0 or not self.log_start_offset <= offset <= self.log_end_offset:
            return restart
        segment = self.segments[at]
        position, offset = self._place_to_cut(segment, offset, may_cut_more)
        if offset < self.log_start_offset:
            # No sound batch is left.
            return replace(restart, log_start_offset=self.log_start_offset, end_offset=self.log_start_offset)
        planned = replace(
            restart,
            log_start_offset=self.log_start_offset,
            end_offset=offset,
            epochs=LeaderEpochs(self.epochs.entries),
            cut=segment.summary,
            position=position,
        )
        planned.epochs.truncate_from_end(offset)
        self.place.keep(f"{segment.base_offset:020d}{SNAPSHOT_SUFFIX}")
        planned.snapshot = self._snapshots.newest(self.disk, segment.base_offset)
        lasts = self.producers.last_offsets().values()
        if (
            planned.snapshot is not None
            or segment.base_offset < self._snapshots.checkpointed_base
            or any(last < segment.base_offset for last in lasts)
        ):
            # A checkpoint may have removed older snapshots, or they are lost: then the whole log is read for its
            # producers.
            planned.earlier_segments = [each.summary for each in self.segments[:at]]
        return planned

    def _place_to_cut(self, segment: Segment, offset: int, may_cut_more: bool) -> tuple[int, int]:
        """Position and offset at which to cut the segment."""
        try:
            position = segment.position_of(self.disk, offset)
        except CorruptBatch:
            position, sound_to = segment.sound_before(offset)
            if sound_to < offset and not may_cut_more:
                raise
            return position, sound_to
        if position is None:
            return segment.summary.size_bytes, offset
        return position, min(offset, read_header(segment.file.pread(HEADER_SIZE, position)).base_offset)

    def truncate(self, truncation: Truncation) -> None:
        """Cut the log as prepared; the next flush makes the cut durable."""
        invariant(self._flushing is None, "a log is not cut while it is flushed")
        invariant(truncation.number == self.truncations + 1, "one cut after the other")
        at = 0 if truncation.cut is None else self.segments.find(truncation.cut.base_offset)
        gone = self.segments[at:]
        try:
            if truncation.cut is not None:
                gone[0].file.truncate(truncation.position)
            for segment in reversed(gone[1:] if truncation.cut is not None else gone):
                for suffix in SEGMENT_SUFFIXES:
                    self.disk.unlink(segment.path + suffix)
            for path in self._snapshots.after(-1 if truncation.cut is None else truncation.end_offset):
                self.disk.unlink(path)
        except OSError as error:
            raise self.health.use_failed(error) from error
        damaged = set(self.segments.damaged)
        self._replace(at, len(self.segments), () if truncation.segment is None else (truncation.segment,))
        # The rest of a cut segment may still be damaged.
        self.segments.damaged |= damaged & {each.base_offset for each in self.segments}
        self._take_over(truncation)

    def give_up(self, truncation: Truncation) -> None:
        """Abandon a cut whose marker may be on disk, until a checkpoint with its number makes the marker obsolete.

        Until then recovery would scan from the cut on, so nothing behind it is compacted.
        """
        self.truncations = truncation.number
        self._marker = truncation.marker
        self._snapshots.scanned_from(truncation.end_position[0])
        if truncation.cut is None and self.segments:
            self.place.note_start(self.log_start_offset)
        self.note_epochs()

    def _take_over(self, truncation: Truncation) -> None:
        last = truncation.segment
        self.truncations = truncation.number
        truncation.producers.unread_end = min(self.producers.unread_end, truncation.end_offset)
        self.epochs, self.producers = truncation.epochs, truncation.producers
        self.log_start_offset, self.log_end_offset = truncation.log_start_offset, truncation.end_offset
        self.flushed_offset = min(self.flushed_offset, truncation.end_offset)
        self.flushed_position = min(self.flushed_position, truncation.end_position)
        self.cleaned_offset = min(self.cleaned_offset, truncation.end_offset)
        base_offset, _ = truncation.end_position
        self._snapshots.cut(-1 if last is None else truncation.end_offset, base_offset, truncation.snapshot)
        self._marker = truncation.marker
        self.health.has_damaged_end = False
        self.unflushed_messages = 0
        self._unsynced.small_files = {
            path: data
            for path, data in self._unsynced.small_files.items()
            if not path.endswith(SNAPSHOT_SUFFIX)
        }
        if last is None:
            self.flushed_offset = truncation.end_offset
            self.place.note_start(self.log_start_offset)
            self._make_directory()
        else:
            self._unsynced.mark(last)
            if last.summary.compacted:
                # Recovery expects no others at the end of a log.
                self._unsynced.small_files[last.path + GAPS_SUFFIX] = b""
        self._unsynced.directories.add(self.directory)
        self.note_epochs()

    def replace_damaged(
        self, damaged: Segment, sound: Segment, path: str, unread_from: int, producers: ProducerStates
    ) -> None:
        """Replace a damaged segment's file by the synced one at `path`; the next flush writes the indexes.

        `producers` wrote the batches that could not be read, from `unread_from` on. Snapshots of before the repair do
        not know these.

        The caller has called `begin_rewrite` and waited for a flush, so that no checkpoint describes the new file.
        """
        at = self.segments.index(damaged)
        invariant(at < len(self.segments) - 1, "a segment that is written to is not replaced")
        try:
            self.disk.rename(path, damaged.log_path)
        except OSError as error:
            raise self.health.use_failed(error) from error
        self._replace(at, at + 1, (sound,))
        self.producers.learn(producers)
        self.note_sound()
        for snapshot in self._snapshots.forget(unread_from):
            self._unsynced.small_files.pop(snapshot, None)
            self._unsynced.garbage.append(snapshot)
        self.health.has_damaged_end = False
        self._unsynced.sealed.append(sound)
        self._unsynced.mark(sound)
        self._unsynced.directories.add(self.directory)
