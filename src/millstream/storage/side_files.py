"""Reads the small files beside a log's records in recovery: leader epochs, log start, identity.

Each can be rebuilt from the checkpoint or from sound records, so damage to one does not lose the log.
"""

from contextlib import suppress

import msgspec

from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.disk import Disk
from millstream.runtime.sometimes import sometimes
from millstream.storage.checkpoint import LogCheckpoint
from millstream.storage.identity import Identity
from millstream.storage.layout import (
    EPOCHS_FILE,
    IDENTITY_FILE,
    START_OFFSET_FILE,
    decode_start_offset,
    encode_start_offset,
)
from millstream.storage.leader_epochs import LeaderEpochs


class SideFiles(msgspec.Struct):
    disk: Disk
    directory: str
    names: list[str]
    """The names in the directory."""
    known: LogCheckpoint | None
    remade: list[str]
    """Files that were missing or damaged."""
    found: Identity | None
    """The directory's identity as its file has it; None if it is missing or damaged."""
    was_flushed: bool = False
    """Whether the log was ever flushed: the flush of its first records writes the first leader epoch."""
    _stored: LeaderEpochs | None = None
    """The epochs in their file; None when it is missing or cannot be read."""

    def __post_init__(self) -> None:
        stored = self._stored = self._stored_epochs()
        self.was_flushed = (self.known is not None and self.known.flushed_position > (0, 0)) or (
            EPOCHS_FILE in self.names and (stored is None or bool(stored.entries))
        )

    def flushed_epochs(self) -> LeaderEpochs | None:
        """None when the epochs are lost and must be rebuilt from the batches."""
        known, stored = self.known, self._stored
        if stored is not None:
            if known is None or not known.epochs or not stored.entries:
                return stored
            start = self._stored_start()
            first = stored.entries[0][1]
            if start is None:
                # The file may be lost. The first epoch gives the start, unless it lies behind the checkpoint's end.
                start = first if first < known.flushed_offset else 0
            return self._as_known(stored, known, max(start, known.log_start_offset))
        if not self.was_flushed:
            return LeaderEpochs()
        return LeaderEpochs(known.epochs) if known is not None and known.epochs else None

    def _as_known(self, stored: LeaderEpochs, known: LogCheckpoint, start: int) -> LeaderEpochs:
        """The stored epochs, corrected by the checkpoint, which unlike Kafka's file format has a checksum."""
        if known.epochs == stored.entries:
            return stored
        upper = known.flushed_offset
        if _between(known.epochs, start, upper) == _between(stored.entries, start, upper):
            return stored
        self.remade.append(EPOCHS_FILE)
        epochs = LeaderEpochs(known.epochs)
        epochs.truncate_from_end(upper)
        for epoch, begin in stored.entries:
            if begin >= upper and epoch > epochs.latest:
                epochs.assign(epoch, begin)
        epochs.dirty = True
        return epochs

    def log_start(self, bases: list[int], epochs: LeaderEpochs | None) -> int:
        """The log start according to the files; `bases` are the segments' base offsets."""
        start = self.known.log_start_offset if self.known else 0
        stored = self._stored_start()
        if stored is not None:
            return max(start, stored)
        is_damaged = START_OFFSET_FILE in self.names
        if epochs is not None and epochs.entries:
            # The epochs are written with every change of the start.
            first = epochs.entries[0][1]
            is_deleted = bool(bases) and start < bases[0] <= first
            return max(start, first) if is_damaged or is_deleted else start
        if is_damaged and not bases and self.known is None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self.directory}/{START_OFFSET_FILE} cannot be read, and nothing else tells where the log begins",
            )
        return max(start, bases[0]) if is_damaged and bases else start

    def made_again(self, identity: Identity, start: int, epochs: LeaderEpochs) -> dict[str, bytes]:
        """Correct contents, by path, of files that are missing, damaged or of an earlier version."""
        files: dict[str, bytes] = {}
        if self.found != identity:
            files[IDENTITY_FILE] = identity.encode()
        if start and self._stored_start() is None:
            files[START_OFFSET_FILE] = encode_start_offset(start)
        if self.was_flushed and self._stored is None:
            files[EPOCHS_FILE] = epochs.encode()
        remade = [name for name in files if name != IDENTITY_FILE or self.found is None]
        if remade:
            sometimes("a small file beside the records was made again")
        self.remade += remade
        return {f"{self.directory}/{name}": data for name, data in files.items()}

    def _stored_epochs(self) -> LeaderEpochs | None:
        """None when the file is not there, or cannot be read."""
        path = f"{self.directory}/{EPOCHS_FILE}"
        if EPOCHS_FILE in self.names:
            with suppress(KafkaError):
                return LeaderEpochs.decode(self.disk.read(path), path)
        return None

    def _stored_start(self) -> int | None:
        """None when the file is not there, or cannot be read."""
        path = f"{self.directory}/{START_OFFSET_FILE}"
        if START_OFFSET_FILE in self.names:
            with suppress(KafkaError):
                return decode_start_offset(self.disk.read(path), path)
        return None


def _between(entries: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    epochs = LeaderEpochs(entries)
    epochs.truncate_from_start(start)
    epochs.truncate_from_end(end)
    return epochs.entries
