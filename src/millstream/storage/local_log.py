"""A log as one node keeps it: append, roll, flush, move its start. On the event loop; nothing waits for an fsync."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from millstream.config.topic import TopicConfig
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import (
    PREFIX_SIZE,
    BatchHeader,
    stamp,
    stamp_append_time,
)
from millstream.runtime.disk import NO_ROOM, Buffer
from millstream.runtime.invariant import invariant
from millstream.runtime.sometimes import sometimes
from millstream.storage.flush import FlushTicket, OwnDirectory, Unsynced
from millstream.storage.identity import NO_INCARNATION, Identity
from millstream.storage.layout import (
    CUT_FILE,
    EPOCHS_FILE,
    IDENTITY_FILE,
    START_OFFSET_FILE,
    TRUNCATION_FILE,
    encode_start_offset,
    parent_directories,
    snapshot_path,
)
from millstream.storage.leader_epochs import LeaderEpochs
from millstream.storage.log_reader import LogRead, LogReader
from millstream.storage.open_files import OpenFiles
from millstream.storage.producer_state import ProducerStates
from millstream.storage.segment import MAX_RELATIVE_OFFSET, Segment, SegmentSummary, find_segment
from millstream.storage.truncation import TruncationMarker


class NoRoom(KafkaError):
    """The disk is full: what was to be written is not there, all else is sound, and it can be tried again."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class LogGone(KafkaError):
    """The log was removed: whatever happens to its files is no fault of the disk."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition was removed from this node")


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool


class LogState(msgspec.Struct):
    """What a log is made of when it is opened: empty, from the checkpoint, or from recovery."""

    segments: list[Segment] = msgspec.field(default_factory=list)
    log_start_offset: int = 0
    flushed_offset: int = 0
    flushed_position: tuple[int, int] = (0, 0)
    cleaned_offset: int = 0
    checkpointed_base: int = 0
    epochs: LeaderEpochs = msgspec.field(default_factory=LeaderEpochs)
    producers: ProducerStates = msgspec.field(default_factory=ProducerStates)
    unwritten: dict[str, bytes] = msgspec.field(default_factory=dict)
    """Small files that the next flush is to write."""
    truncations: int = 0
    is_doubtful: bool = False
    incarnation: bytes = NO_INCARNATION
    rewrites: int = 0
    rewritten: dict[int, int] = msgspec.field(default_factory=dict)
    damaged: set[int] = msgspec.field(default_factory=set)
    marker: TruncationMarker | None = None
    """Of cuts that the checkpoint on disk does not know of."""


class LocalLog:
    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        topic_id: bytes,
        config: TopicConfig,
        state: LogState | None = None,
    ) -> None:
        state = state or LogState()
        self.directory = directory
        self.topic_id = topic_id
        self.config = config
        self.files = files
        self.disk = files.disk
        self.segments = state.segments
        self.epochs = state.epochs
        self.producers = state.producers
        self.log_start_offset = state.log_start_offset
        self.log_end_offset = max(
            state.log_start_offset, self.segments[-1].summary.end_offset if self.segments else 0
        )
        self.flushed_offset = state.flushed_offset
        self.flushed_position = state.flushed_position
        self.cleaned_offset = state.cleaned_offset
        self.truncations = state.truncations
        self.is_doubtful = state.is_doubtful
        """Recovery cut something that may have been confirmed."""
        self.incarnation = state.incarnation
        self.rewrites = state.rewrites
        self.damaged = state.damaged
        """Base offsets of segments that are known to hold damage."""
        self._rewritten = state.rewritten
        self.offline: KafkaError | None = None
        self.cleaning = False
        self.swapping = False
        self.truncating = False
        self.record_count = sum(segment.summary.record_count for segment in self.segments)
        self.size_bytes = sum(segment.summary.size_bytes for segment in self.segments)
        self.unflushed_messages = 0
        self.appended_bytes = 0
        self._unsynced = Unsynced()
        self._unsynced.small_files.update(state.unwritten)
        self._flushing: FlushTicket | None = None
        self._own_directory = OwnDirectory()
        self._gone: LogGone | None = None
        self._marker = state.marker
        self._checkpointed_base = state.checkpointed_base
        self._snapshots = [segment.base_offset for segment in self.segments]
        self._reader = LogReader(self.disk, self.segments)

    # -- writing

    def append(self, view: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int) -> Appended:
        """Stamp and write one validated batch of a producer."""
        self._require_online()
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
            failure = self.write_failed(error)
            self.producers.refuse(header, failure)
            raise failure from error
        self._unsynced.mark(segment)
        if header.producer_id >= 0:
            self.producers.update(header, base_offset, now_ms)
        self.log_end_offset = last_offset + 1
        self.record_count += header.record_count
        self.unflushed_messages += header.record_count
        size = header.batch_length + PREFIX_SIZE
        self.size_bytes += size
        self.appended_bytes += size

    def begin_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Note where a leader's writing begins; reaches the disk with the next flush, before any acknowledgement.

        After a crash recovery finds the epoch in the batches. One without a directory waits for it.
        """
        self.epochs.assign(leader_epoch, start_offset)
        self.note_epochs()

    def end_epochs(self) -> None:
        """This node leads no longer: epochs in which it wrote nothing are not part of the log."""
        self.epochs.truncate_from_end(self.log_end_offset)
        if self.epochs.dirty:
            self.note_epochs()

    def note_epochs(self) -> None:
        """Have the next flush write them."""
        if not self.segments and not self.disk.exists(self.directory):
            return
        self._unsynced.small_files[f"{self.directory}/{EPOCHS_FILE}"] = self.epochs.encode()

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

    def _require_online(self) -> None:
        if self.offline is not None:
            raise self.offline

    def write_failed(self, error: OSError) -> KafkaError:
        """A full disk refuses this write only; any other failure takes the partition offline."""
        if self._gone is not None:
            return self._gone
        message = f"cannot write to {self.directory}: {error.strerror}"
        if error.errno in NO_ROOM:
            return NoRoom(message)
        self.offline = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
        return self.offline

    @property
    def is_gone(self) -> bool:
        """Whether it was removed: what happens to its files is no fault of the disk."""
        return self._gone is not None

    def write_by_name(self, work: Callable[[], None]) -> None:
        """In a thread: change files of the directory while nothing else does; LogGone when it is not this log's now."""
        with self._own_directory as is_ours:
            if not is_ours:
                raise LogGone
            work()

    # -- segments

    def _segment_for(self, header: BatchHeader, last_offset: int, max_timestamp: int, now_ms: int) -> Segment:
        if not self.segments:
            return self.roll(now_ms)
        active = self.segments[-1]
        size = header.batch_length + PREFIX_SIZE
        if active.summary.size_bytes and self._is_full(active, size, last_offset, max_timestamp, now_ms):
            return self.roll(now_ms)
        return active

    def _is_full(
        self, active: Segment, size_bytes: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Whether so many bytes more are for a new segment."""
        summary, config = active.summary, self.config
        if max_timestamp >= 0 and summary.first_timestamp >= 0:
            waited = max_timestamp - summary.first_timestamp
        else:
            waited = now_ms - summary.created_ms
        return (
            summary.size_bytes + size_bytes > config.segment_bytes
            or waited > config.segment_ms - active.jitter_ms(config.segment_jitter_ms)
            or last_offset - summary.base_offset > MAX_RELATIVE_OFFSET
            or active.index.is_full(config.segment_index_bytes)
            or active.time_index.is_full(config.segment_index_bytes)
        )

    def roll(self, now_ms: int) -> Segment:
        """Seal the active segment and begin a new one at the log's end."""
        if self.segments and self.segments[-1].summary.size_bytes == 0:
            return self.segments[-1]
        started = self._start_segment(now_ms)
        # A reader at the end was sent to the end of the segment that is sealed now.
        self._reader.forget_places()
        if self.segments:
            active = self.segments[-1]
            active.seal()
            active.trim()
            self._unsynced.sealed.append(active)
            self._unsynced.mark(active)
        if len(self.producers):
            path = snapshot_path(self.directory, self.log_end_offset)
            self._unsynced.small_files[path] = self.producers.encode()
            self._snapshots.append(self.log_end_offset)
        self.segments.append(started)
        return started

    def checkpointed(self, base_offset: int) -> None:
        """A start after a crash will scan from the segment at `base_offset` on: older snapshots have served."""
        self._checkpointed_base = base_offset
        if self._marker is not None and not self.truncating:
            self._unsynced.garbage.append(f"{self.directory}/{TRUNCATION_FILE}")
            self._marker = None
        old = [offset for offset in self._snapshots if offset < base_offset]
        del self._snapshots[: len(old)]
        self._unsynced.garbage += [snapshot_path(self.directory, offset) for offset in old]

    def _start_segment(self, now_ms: int) -> Segment:
        self._require_kept()
        self._ensure_directory()
        summary = SegmentSummary(self.log_end_offset, end_offset=self.log_end_offset, created_ms=now_ms)
        segment = Segment(self.files, self.directory, summary, stored=False)
        segment.create()
        try:
            segment.file.truncate(0)
            if self.config.preallocate:
                segment.allocate(self.config.segment_bytes)
        except OSError:
            # Left behind, it would look like the end of the log while the segment before it goes on growing.
            segment.close()
            with suppress(OSError):
                self.disk.unlink(segment.log_path)
            raise
        self._unsynced.directories.add(self.directory)
        return segment

    def _require_kept(self) -> None:
        """Another log may have the directory by now, with files of the same names."""
        if self._gone is not None:
            raise self._gone

    def _ensure_directory(self) -> None:
        if self.segments or self.disk.exists(f"{self.directory}/{IDENTITY_FILE}"):
            return
        self.disk.make_dirs(self.directory)
        identity = f"{self.directory}/{IDENTITY_FILE}"
        self.disk.write_atomically(identity, self.identity.encode(), durable=False)
        self._note_identity()
        if self.epochs.entries:
            # A leader that has not written yet.
            self._unsynced.small_files[f"{self.directory}/{EPOCHS_FILE}"] = self.epochs.encode()
        self._unsynced.directories.update(parent_directories(self.directory))

    # -- what a checkpoint stands for

    @property
    def identity(self) -> Identity:
        return Identity(self.topic_id, self.incarnation, self.rewrites, self._rewritten)

    def begin_rewrite(self, bases: Sequence[int]) -> int:
        """Files of these segments are to be replaced: returns the number of what takes their place.

        Once the next flush has returned, no checkpoint from before stands for them.
        """
        self.rewrites += 1
        self._rewritten = {**self._rewritten, **dict.fromkeys(bases, self.rewrites)}
        self._note_identity()
        return self.rewrites

    def described(self, numbers: Mapping[int, int]) -> None:
        """A checkpoint is on disk that has segments with these numbers, by base offset, and no others."""
        self._rewritten = {
            base: number for base, number in self._rewritten.items() if numbers.get(base, number) != number
        }

    def _note_identity(self) -> None:
        self._unsynced.small_files[f"{self.directory}/{IDENTITY_FILE}"] = self.identity.encode()

    # -- flushing

    @property
    def has_unsynced(self) -> bool:
        return bool(self._unsynced)

    @property
    def has_sealed(self) -> bool:
        """A full segment waits for its indexes and its sync."""
        return bool(self._unsynced.sealed)

    @property
    def settled_count(self) -> int:
        """How many segments from the first on are sealed, synced and indexed: no flush concerns them any more."""
        return find_segment(self.segments, self.flushed_position[0] - 1) + 1

    @property
    def cleanable_count(self) -> int:
        """How many segments from the first on may be compacted: a start after a crash does not scan them.

        Where it scans, recovery takes a gap between offsets for a loss.
        """
        return find_segment(self.segments, min(self._checkpointed_base, self.flushed_position[0]) - 1) + 1

    def begin_flush(self) -> FlushTicket | None:
        """Everything not yet synced, as work for another thread; None when there is nothing."""
        if not self._unsynced or self.offline is not None:
            return None
        invariant(self._flushing is None, "one flush of a log at a time")
        active = self.segments[-1].summary if self.segments else None
        self._flushing = self._unsynced.take(
            self.log_end_offset,
            (active.base_offset, active.size_bytes) if active else self.flushed_position,
            self.appended_bytes,
            self._own_directory,
        )
        self.unflushed_messages = 0
        return self._flushing

    def complete_flush(self, ticket: FlushTicket) -> None:
        self._flushing = None
        self._release(ticket.segments)
        self.flushed_offset = max(self.flushed_offset, ticket.end_offset)
        self.flushed_position = max(self.flushed_position, ticket.end_position)

    def fail_flush(self, ticket: FlushTicket, error: OSError) -> KafkaError:
        """After a failed fsync the kernel may have dropped the bytes: nothing above the last good flush is trusted.

        When only files beside the records found no room, all is tried again with the next flush.
        """
        self._flushing = None
        if ticket.synced and error.errno in NO_ROOM and self._gone is None:
            self._unsynced.put_back(ticket)
            return NoRoom(f"{self.directory} has no room for its indexes and checkpoints: {error.strerror}")
        self._release(ticket.segments)
        if self.offline is None:
            self.offline = KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"fsync of {self.directory} failed ({error.strerror}); the partition is offline, "
                "restart the node when the disk is sound and it will recover from what is really stored",
            )
        return self.offline

    def storage_failed(self, error: OSError) -> KafkaError:
        """Take the log offline because a file cannot be used."""
        if self._gone is not None:
            return self._gone
        self.offline = KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"cannot use {self.directory}: {error.strerror}"
        )
        return self.offline

    def _release(self, segments: list[Segment]) -> None:
        for segment in segments:
            segment.pins -= 1
            if self._gone is not None and segment.pins == 0:
                segment.close()
        self.files.trim()

    # -- reading

    def read(self, offset: int, max_bytes: int, upper_offset: int, *, min_one: bool = True) -> LogRead:
        """Whole, verified batches from the one that holds `offset`, up to `max_bytes` and below `upper_offset`.

        With `min_one` the first batch is returned even when it is larger than `max_bytes`.
        """
        self._require_online()
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside [{self.log_start_offset}, {self.log_end_offset}]",
            )
        if offset >= upper_offset or (max_bytes <= 0 and not min_one):
            return LogRead(memoryview(b""), offset)
        try:
            return self._reader.read(offset, max_bytes, upper_offset, self.epochs, min_one=min_one)
        except OSError as error:
            raise self.read_failed(error) from error

    def read_failed(self, error: OSError) -> KafkaError:
        if self._gone is not None:
            return self._gone
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot read {self.directory}: {error.strerror}")

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset(epoch, self.log_end_offset)

    # -- the start of the log

    @property
    def message_count(self) -> int:
        """Messages that can be read: those of the segments, less what lies below the log's start."""
        if not self.segments:
            return 0
        first = self.segments[0].summary
        # Where compaction has made gaps, what lies below the start is not counted one by one.
        is_dense = first.record_count == first.end_offset - first.base_offset
        hidden = self.log_start_offset - first.base_offset if is_dense else 0
        return self.record_count - min(max(hidden, 0), first.record_count)

    def advance_start(self, offset: int) -> None:
        """Hide everything below `offset`; written to disk by the next flush."""
        self._require_kept()
        if offset <= self.log_start_offset:
            return
        invariant(offset <= self.log_end_offset, "the log's start stays at or before its end")
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        self._unsynced.small_files[f"{self.directory}/{START_OFFSET_FILE}"] = encode_start_offset(offset)
        # The first of them begins there too: one of the two files can be made again from the other.
        self.note_epochs()
        self._ensure_directory()

    def drop_segments(self, count: int) -> list[str]:
        """Take the first `count` segments out of the log; returns their paths for deletion."""
        dropped = self.segments[:count]
        invariant(count < len(self.segments), "the active segment stays")
        del self.segments[:count]
        self._forget(dropped)
        start = self.segments[0].base_offset
        if start > self.log_start_offset:
            self.log_start_offset = start
            self.epochs.truncate_from_start(start)
        return [segment.path for segment in dropped]

    def replace_segments(self, sources: Sequence[int], summary: SegmentSummary) -> None:
        """Put a compacted segment, whose files are in place, where its sources were."""
        summary.compacted = True
        old = [segment for segment in self.segments if segment.base_offset in sources]
        first = self.segments.index(old[0])
        self._forget(old)
        self.segments[first : first + len(old)] = [Segment(self.files, self.directory, summary, stored=True)]
        self.record_count += summary.record_count
        self.size_bytes += summary.size_bytes

    def _forget(self, dropped: list[Segment]) -> None:
        self._reader.forget_places()
        for segment in dropped:
            self.record_count -= segment.summary.record_count
            self.size_bytes -= segment.summary.size_bytes
            self._unsynced.forget(segment)
            self.damaged.discard(segment.base_offset)
            if segment.pins == 0:
                segment.close()

    def trust(self) -> None:
        """This replica leads or has caught up with the leader: what recovery cut is there again, or nobody has it."""
        self.is_doubtful = False
        # A name that stays makes a later start ask the others in vain, and does no other harm.
        with suppress(OSError):
            self.disk.unlink(f"{self.directory}/{CUT_FILE}")

    def update_config(self, config: TopicConfig) -> None:
        self.config = config

    def retire(self) -> None:
        """The log is being deleted: late requests get an error, files are closed."""
        self.offline = self._gone = LogGone()
        self._own_directory.give_up()
        if self._flushing is not None:
            sometimes("a log was removed while it was flushed")
        unsynced, self._unsynced = self._unsynced, Unsynced()
        self._release(unsynced.segments)
        for segment in self.segments:
            if segment.pins == 0:
                segment.close()

    def close(self) -> bool:
        """Sync and write the indexes at the end of the node's life; False when the log is not sound."""
        if self.offline is not None or self.swapping or self._flushing is not None:
            return False
        ticket = self.begin_flush()
        try:
            if ticket is not None:
                ticket.run(self.disk)
                self.complete_flush(ticket)
            for segment in self.segments:
                if segment.index.dirty or segment.time_index.dirty:
                    segment.seal()
                    segment.index.write(self.disk, durable=False)
                    segment.time_index.write(self.disk, durable=False)
            if self.segments:
                self.segments[-1].trim()
        except OSError as error:
            if ticket is not None:
                self.fail_flush(ticket, error)
            return False
        for segment in self.segments:
            segment.close()
        return True
