"""The files of a log: roll, flush, read, move its start. On the event loop; nothing waits for an fsync."""

from collections.abc import Collection, Sequence
from contextlib import suppress

from millstream.config.topic import TopicConfig
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import PREFIX_SIZE, BatchHeader
from millstream.runtime.disk import NO_ROOM
from millstream.runtime.invariant import invariant
from millstream.runtime.sometimes import sometimes
from millstream.storage.flush import FlushTicket, Unsynced
from millstream.storage.identity import Identity
from millstream.storage.layout import CUT_FILE, TRUNCATION_FILE
from millstream.storage.leader_epochs import LeaderEpochs
from millstream.storage.log_directory import LogDirectory
from millstream.storage.log_health import LogHealth, LogWork, NoRoom
from millstream.storage.log_reader import LogRead, LogReader
from millstream.storage.log_state import LogState
from millstream.storage.open_files import OpenFiles
from millstream.storage.producer_snapshots import ProducerSnapshots
from millstream.storage.segment import Segment, SegmentSummary
from millstream.storage.segments import Segments, new_segment


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
        self.config = config
        self.files = files
        self.disk = files.disk
        self.segments = Segments(state.segments, state.damaged)
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
        self.health = LogHealth(directory, is_doubtful=state.is_doubtful)
        self.work = LogWork.NOTHING
        self.unflushed_messages = 0
        self.appended_bytes = 0
        identity = Identity(
            topic_id, state.incarnation, state.rewrites, state.rewritten, state.acknowledges_early
        )
        self._may_acknowledge_early = False
        """The disk says so, since a flush of this process."""
        self.is_catching_up = False
        """A replica that is not in sync: it gets records that others may have flushed long ago."""
        self._unsynced = Unsynced()
        self._unsynced.small_files.update(state.unwritten)
        self.place = LogDirectory(files.disk, directory, identity, self._unsynced)
        self._flushing: FlushTicket | None = None
        self._marker = state.marker
        self._snapshots = ProducerSnapshots(
            directory, (each.base_offset for each in self.segments), state.checkpointed_base
        )
        self._reader = LogReader(self.disk, self.segments)

    @property
    def offline(self) -> KafkaError | None:
        return self.health.offline

    @property
    def is_flushed_first(self) -> bool:
        """Whether a record is acknowledged only when it is on disk.

        So it is in a durable topic, and in any topic until the replica is in sync, and until the directory says
        otherwise: after a crash, what it says decides whether acknowledged records may be missing, not the setting of
        that time.
        """
        return not self._may_acknowledge_early or self.config.durable or self.is_catching_up

    @property
    def is_being_changed(self) -> bool:
        """Whether the log is being cleaned, repaired or cut, so that no other change may begin."""
        return self.work is not LogWork.NOTHING

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    def _count(self, records: int, size_bytes: int) -> None:
        self.segments.record_count += records
        self.segments.size_bytes += size_bytes
        self.unflushed_messages += records
        self.appended_bytes += size_bytes

    def begin_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Note where a leader's epoch begins; it reaches the disk with the next flush, before any acknowledgement.

        After a crash, recovery finds the epoch in the batches. Without a directory yet, nothing is written.
        """
        self.epochs.assign(leader_epoch, start_offset)
        self.note_epochs()

    def end_epochs(self) -> None:
        """The node stops leading: epochs without records are removed from the log."""
        self.epochs.truncate_from_end(self.log_end_offset)
        if self.epochs.dirty:
            self.note_epochs()

    def note_epochs(self) -> None:
        """Have the next flush write the epochs."""
        if self.segments or self.disk.exists(self.directory):
            self.place.note_epochs(self.epochs)

    # -- segments

    def _segment_for(self, header: BatchHeader, last_offset: int, max_timestamp: int, now_ms: int) -> Segment:
        segments = self.segments
        if not segments:
            return self.roll(now_ms)
        active = segments[-1]
        if active.summary.size_bytes and segments.is_full(
            self.config, header.batch_length + PREFIX_SIZE, last_offset, max_timestamp, now_ms
        ):
            return self.roll(now_ms)
        return active

    def roll(self, now_ms: int) -> Segment:
        """Seal the active segment and begin a new one at the log's end."""
        if self.segments and self.segments[-1].summary.size_bytes == 0:
            return self.segments[-1]
        started = self._start_segment(now_ms)
        # A remembered position at the log's end points into the segment that is now sealed.
        self._reader.forget_places()
        if self.segments:
            active = self.segments[-1]
            active.seal()
            active.trim()
            self._unsynced.sealed.append(active)
            self._unsynced.mark(active)
        if len(self.producers) and not self.producers.unread_end:
            self._unsynced.small_files[self._snapshots.add(self.log_end_offset)] = self.producers.encode()
        self.segments.append(started)
        return started

    def checkpointed(self, base_offset: int) -> None:
        """A checkpoint is on disk: recovery would scan from the segment at `base_offset`, without older snapshots."""
        if self._marker is not None and self.work is not LogWork.TRUNCATING:
            self.place.remove(TRUNCATION_FILE)
            self._marker = None
        self._unsynced.garbage += self._snapshots.checkpointed(base_offset)

    def _start_segment(self, now_ms: int) -> Segment:
        self.health.require_kept()
        self._make_directory()
        segment = new_segment(self.files, self.directory, self.log_end_offset, self.config, now_ms)
        self._unsynced.directories.add(self.directory)
        return segment

    def _make_directory(self) -> None:
        if not self.segments:
            self.place.make(self.epochs, is_doubtful=self.health.is_doubtful)

    # -- flushing

    @property
    def has_unsynced(self) -> bool:
        if self._unsynced:
            return True
        durable = self.config.durable
        if durable != self.place.identity.acknowledges_early or not self.segments:
            return False
        # The directory does not say what the topic's setting asks for. In a doubtful log, early is not taken back.
        return not (durable and self.health.is_doubtful)

    @property
    def has_sealed(self) -> bool:
        """Whether a full segment waits for its indexes and its sync."""
        return bool(self._unsynced.sealed)

    @property
    def settled_count(self) -> int:
        """How many segments, from the first on, are sealed, synced and indexed, so that no flush needs them."""
        return self.segments.find(self.flushed_position[0] - 1) + 1

    @property
    def cleanable_count(self) -> int:
        """How many segments, from the first on, may be compacted: those that recovery would not scan.

        In a scan, recovery takes a gap between offsets for a loss.
        """
        return self.segments.find(min(self._snapshots.checkpointed_base, self.flushed_position[0]) - 1) + 1

    def begin_flush(self) -> FlushTicket | None:
        """Everything not yet synced, as work for another thread; None when there is nothing."""
        if self.health.offline is not None or not self.has_unsynced:
            return None
        durable = self.config.durable
        if self.segments and (not durable or self.place.identity.acknowledges_early):
            self._note_early_acknowledgements(durable=durable)
        invariant(self._flushing is None, "one flush of a log at a time")
        active = self.segments[-1].summary if self.segments else None
        self._flushing = self._unsynced.take(
            self.log_end_offset,
            (active.base_offset, active.size_bytes) if active else self.flushed_position,
            self.appended_bytes,
            self.place.ownership,
        )
        self._flushing.allows_early = not durable and active is not None
        self.unflushed_messages = 0
        return self._flushing

    def _note_early_acknowledgements(self, *, durable: bool) -> None:
        """For a log that acknowledges early, or did: its directory says so, also while the log is in doubt."""
        if not durable or self.health.is_doubtful:
            if not self._may_acknowledge_early:
                self.place.note_early_acknowledgements(are_made=True)
        else:
            # The same flush first syncs what was acknowledged early.
            self._may_acknowledge_early = False
            self.place.note_early_acknowledgements(are_made=False)

    def complete_flush(self, ticket: FlushTicket) -> None:
        self._flushing = None
        self._release(ticket.segments)
        self.flushed_offset = max(self.flushed_offset, ticket.end_offset)
        self.flushed_position = max(self.flushed_position, ticket.end_position)
        if ticket.allows_early:
            self._may_acknowledge_early = True

    def fail_flush(self, ticket: FlushTicket, error: OSError) -> KafkaError:
        """If the disk was full only for files beside the records, the next flush retries everything."""
        self._flushing = None
        if ticket.synced and error.errno in NO_ROOM and not self.health.is_gone:
            self._unsynced.put_back(ticket)
            return NoRoom(f"{self.directory} has no room for its indexes and checkpoints: {error.strerror}")
        self._release(ticket.segments)
        return self.health.sync_failed(error)

    def _release(self, segments: list[Segment]) -> None:
        for segment in segments:
            segment.pins -= 1
            if self.health.is_gone and segment.pins == 0:
                segment.close()
        self.files.trim()

    # -- reading

    def read(self, offset: int, max_bytes: int, upper_offset: int, *, min_one: bool = True) -> LogRead:
        """Whole, verified batches from the one that holds `offset`, up to `max_bytes` and below `upper_offset`.

        With `min_one` the first batch is returned even when it is larger than `max_bytes`.
        """
        self.health.require_online()
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
            raise self.health.read_failed(error) from error

    def end_offset_for_epoch(self, epoch: int, leader_epoch: int) -> tuple[int, int]:
        """The largest epoch at or below `epoch`, and where it ended, for a leader of `leader_epoch`.

        The leader's own epoch begins at the log's end, even before it has records. So an empty epoch before it is not
        answered as unknown, after which a reader would discard everything that it has read.
        """
        epochs, end = self.epochs, self.log_end_offset
        if epochs.latest < leader_epoch:
            epochs = LeaderEpochs(epochs.entries)
            epochs.assign(leader_epoch, end)
        return epochs.end_offset(epoch, end)

    # -- the start of the log

    @property
    def message_count(self) -> int:
        """Messages that can be read."""
        return self.segments.messages_from(self.log_start_offset)

    def advance_start(self, offset: int) -> None:
        """Hide everything below `offset`; written to disk by the next flush."""
        self.health.require_kept()
        if offset <= self.log_start_offset:
            return
        invariant(offset <= self.log_end_offset, "the log's start stays at or before its end")
        self.log_start_offset = offset
        self.note_sound()
        self.epochs.truncate_from_start(offset)
        self.place.note_start(offset)
        # The first epoch begins there too, so that either file can be rebuilt from the other.
        self.note_epochs()
        self._make_directory()

    def note_sound(self) -> None:
        """Some damaged segments were repaired or deleted, or are sound: producers are unknown only of those left."""
        if not self.producers.unread_end:
            return
        damaged = (
            each.summary.end_offset for each in self.segments if each.base_offset in self.segments.damaged
        )
        left = max((end for end in damaged if end > self.log_start_offset), default=0)
        self.producers.unread_end = min(self.producers.unread_end, left)

    def drop_segments(self, count: int) -> list[str]:
        """Take the first `count` segments out of the log; returns their paths for deletion."""
        invariant(count < len(self.segments), "the active segment stays")
        dropped = self._replace(0, count, ())
        start = self.segments[0].base_offset
        if start > self.log_start_offset:
            self.log_start_offset = start
            self.note_sound()
            self.epochs.truncate_from_start(start)
            self.place.note_start(start)
            self.note_epochs()
        return [segment.path for segment in dropped]

    def replace_segments(self, sources: Sequence[int], summary: SegmentSummary) -> None:
        """Replace the sources by the compacted segment, whose files are already in place."""
        summary.compacted = True
        old = [segment for segment in self.segments if segment.base_offset in sources]
        first = self.segments.index(old[0])
        self._replace(first, first + len(old), (Segment(self.files, self.directory, summary, stored=True),))

    def _replace(self, first: int, end: int, others: Collection[Segment]) -> list[Segment]:
        """Replace segments `first` to `end` (exclusive), which are closed and returned."""
        self._reader.forget_places()
        gone = self.segments.replace(first, end, others)
        for segment in gone:
            self._unsynced.forget(segment)
            if segment.pins == 0:
                segment.close()
        return gone

    def trust(self) -> None:
        """Clear the doubt once this replica leads or has caught up: it has what recovery cut, or no replica does."""
        self.health.is_doubtful = False
        path = f"{self.directory}/{CUT_FILE}"
        self._unsynced.small_files.pop(path, None)
        # If the file stays, the next start only asks the other replicas once more.
        with suppress(OSError):
            self.disk.unlink(path)

    def retire(self) -> None:
        """The log is being deleted: late requests get an error, and nothing more is written there by name."""
        self.health.removed()
        self.place.ownership.give_up()
        if self._flushing is not None:
            sometimes("a log was removed while it was flushed")

    def let_go(self) -> None:
        """After `retire`, perhaps some turns of the loop later: its files are closed."""
        self._release(self._unsynced.drop())
        for segment in self.segments:
            if segment.pins == 0:
                segment.close()

    def close(self) -> bool:
        """Sync the log and write its indexes when the node stops; False when the log is not sound."""
        health = self.health
        if health.offline is not None or health.is_half_swapped or self._flushing is not None:
            return False
        ticket = self.begin_flush()
        try:
            if ticket is not None:
                ticket.run(self.disk)
                self.complete_flush(ticket)
            self.segments.write_indexes(self.disk)
        except OSError as error:
            if ticket is not None:
                self.fail_flush(ticket, error)
            return False
        for segment in self.segments:
            segment.close()
        return not (health.has_damaged_end and self.segments.damaged)
