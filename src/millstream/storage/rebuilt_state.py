"""State that recovery rebuilds from the records: idempotent producers and leader epochs."""

from collections.abc import Iterable

import msgspec

from millstream.protocol.record_batch import BatchHeader
from millstream.runtime.disk import Disk
from millstream.storage.layout import EPOCHS_FILE, SNAPSHOT_SUFFIX, offset_in, snapshot_path
from millstream.storage.leader_epochs import LeaderEpochs
from millstream.storage.producer_state import ProducerStates
from millstream.storage.segment import SegmentSummary


class RebuiltState(msgspec.Struct):
    """Producers as of the newest snapshot that is not ahead of the scan, and what the scan adds to them.

    No snapshot means no producers, unless the checkpoint had some: one is written whenever a segment is begun while
    there are some, and kept until a checkpoint lets the scan begin behind it.
    """

    epochs: LeaderEpochs
    producers: ProducerStates
    producers_from: int
    now_ms: int
    has_lost_epochs: bool = False
    """The flushed epochs are lost: only those in batches are known."""
    _unreadable: set[int] = msgspec.field(default_factory=set)
    _at_segment_start: bytes = b""

    @classmethod
    def begin(
        cls,
        disk: Disk,
        directory: str,
        names: list[str],
        scan_from: int,
        now_ms: int,
        epochs: LeaderEpochs | None,
        checkpointed: bytes = b"",
    ) -> "RebuiltState":
        """`epochs` are the flushed ones; None when they are lost. `checkpointed` are the checkpoint's producers."""
        begun = cls(epochs or LeaderEpochs(), ProducerStates(), scan_from, now_ms, epochs is None)
        for offset in reversed(_snapshots(names)):
            if offset > scan_from:
                continue
            producers = ProducerStates.decode(disk.read(snapshot_path(directory, offset)))
            if producers is not None:
                begun.producers, begun.producers_from = producers, offset
                return begun
            begun._unreadable.add(offset)
        if begun._unreadable or _wrote_before(scan_from, checkpointed):
            # No snapshot can be read, or it is lost: producers are rebuilt from the whole log.
            begun.producers_from = 0
        return begun

    def begin_segment(self) -> None:
        self._at_segment_start = self.producers.encode() if len(self.producers) else b""

    def see(self, header: BatchHeader) -> None:
        expected, is_last = self.epochs.expected_at(header.base_offset)
        if is_last and header.leader_epoch != expected:
            # An epoch may be lower than the last noted one, of a leader that wrote nothing in it and then followed.
            self.epochs.assign(header.leader_epoch, header.base_offset)
        self.see_producer(header)

    def see_producer(self, header: BatchHeader) -> None:
        if header.producer_id >= 0 and header.base_offset >= self.producers_from and not header.is_control:
            self.producers.update(header, header.base_offset, self.now_ms)

    def note_unread(self, damaged: Iterable[SegmentSummary]) -> None:
        """Producers of these segments were not seen, except those that a snapshot of a later offset has."""
        ends = (each.end_offset for each in damaged if each.end_offset > self.producers_from)
        self.producers.unread_end = max(ends, default=0)

    def fit(self, disk: Disk, directory: str, names: list[str], start: int, end: int) -> None:
        """Drop state outside the recovered log."""
        self.epochs.truncate_from_end(end)
        self.epochs.truncate_from_start(start)
        for offset in _snapshots(names):
            if offset > end:
                disk.unlink(snapshot_path(directory, offset))

    def new_files(self, directory: str, names: list[str], last_base: int) -> dict[str, bytes]:
        """Side files that a later recovery needs, because it will scan only from `last_base` on."""
        files: dict[str, bytes] = {}
        if self.epochs.dirty:
            files[f"{directory}/{EPOCHS_FILE}"] = self.epochs.encode()
        stored = set(_snapshots(names)) - self._unreadable
        if self._at_segment_start and last_base not in stored and not self.producers.unread_end:
            files[snapshot_path(directory, last_base)] = self._at_segment_start
        return files


def _wrote_before(offset: int, checkpointed: bytes) -> bool:
    """Whether a producer of the checkpoint wrote its last batch before `offset`."""
    known = ProducerStates.decode(checkpointed) if checkpointed else None
    return known is not None and any(last < offset for last in known.last_offsets().values())


def _snapshots(names: list[str]) -> list[int]:
    return sorted(offset for name in names if (offset := offset_in(name, SNAPSHOT_SUFFIX)) is not None)
