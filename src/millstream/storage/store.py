"""All partition logs of one data directory: opening them at start, making and removing them, the checkpoint."""

import uuid
from collections.abc import Callable, Iterable
from typing import NamedTuple

from millstream.config.topic import TopicConfig
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.clock import Clock
from millstream.runtime.disk import Disk
from millstream.storage.checkpoint import (
    LogCheckpoint,
    describe,
    mark_clean,
    read_checkpoint,
    take_clean_marker,
    write_checkpoint,
)
from millstream.storage.layout import IDENTITY_FILE, TOPICS, decode_identity, partition_directory
from millstream.storage.log import PartitionLog
from millstream.storage.open_files import OpenFiles
from millstream.storage.recovery import RecoveryReport, recover_log

LOCK_FILE = ".lock"
DELETED = "deleted"
STRAY = "stray"


class PartitionSpec(NamedTuple):
    topic: str
    partition: int
    topic_id: bytes
    config: TopicConfig


class DataDirectoryInUse(Exception):
    pass


class LogStore:
    def __init__(self, disk: Disk, clock: Clock, data_dir: str, max_open_files: int) -> None:
        self.disk = disk
        self.data_dir = data_dir
        self.files = OpenFiles(disk, max_open_files)
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.was_clean = False
        self._clock = clock
        self._written: int | None = None

    def lock(self) -> None:
        self.disk.make_dirs(self.data_dir)
        if not self.disk.lock(f"{self.data_dir}/{LOCK_FILE}"):
            raise DataDirectoryInUse(
                f"{self.data_dir} is in use by another node; stop it or choose another directory with --data"
            )

    def load(self, partitions: Iterable[PartitionSpec], progress: Callable[[RecoveryReport], None]) -> None:
        """Open every log: from the checkpoint after a clean stop, otherwise by recovery."""
        self.disk.make_dirs(f"{self.data_dir}/{TOPICS}")
        found = read_checkpoint(self.disk, self.data_dir)
        entries, crc = found if found is not None else ([], -1)
        self.was_clean = take_clean_marker(self.disk, self.data_dir, crc)
        known = {(entry.topic, entry.partition): entry for entry in entries}
        for spec in partitions:
            entry = known.get((spec.topic, spec.partition))
            if entry is not None and entry.topic_id != spec.topic_id:
                entry = None
            self.logs[spec.topic, spec.partition] = self._open(spec, entry, progress)

    def _open(
        self, spec: PartitionSpec, entry: LogCheckpoint | None, progress: Callable[[RecoveryReport], None]
    ) -> PartitionLog:
        directory = partition_directory(self.data_dir, spec.topic, spec.partition)
        if self.was_clean:
            state = entry.state(self.files, directory) if entry is not None else None
            return PartitionLog(self.files, directory, spec.topic_id, spec.config, state)
        try:
            self._move_if_foreign(directory, spec.topic_id)
            state, report = recover_log(self.files, directory, spec.config, entry, self._clock.now_ms())
        except (KafkaError, OSError) as error:
            log = PartitionLog(self.files, directory, spec.topic_id, spec.config)
            log.offline = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory} cannot be opened: {error}")
            progress(RecoveryReport(directory, damages=[str(error)]))
            return log
        progress(report)
        return PartitionLog(self.files, directory, spec.topic_id, spec.config, state)

    def _move_if_foreign(self, directory: str, topic_id: bytes) -> None:
        """A directory of an earlier topic of the same name is not this partition's: move it out of the way."""
        identity = f"{directory}/{IDENTITY_FILE}"
        if not self.disk.exists(identity):
            return
        owner = decode_identity(self.disk.read(identity))
        if owner is not None and owner != topic_id:
            self._move_away(directory, STRAY)

    def create(self, spec: PartitionSpec) -> PartitionLog:
        """A new, empty log. Nothing is written until its first append."""
        directory = partition_directory(self.data_dir, spec.topic, spec.partition)
        if self.disk.exists(directory):
            self._move_away(directory, STRAY)
        log = PartitionLog(self.files, directory, spec.topic_id, spec.config)
        self.logs[spec.topic, spec.partition] = log
        return log

    def remove(self, topic: str, index: int) -> str | None:
        """Take a log out of service; returns the path that is left to delete, if any."""
        log = self.logs.pop((topic, index), None)
        if log is None:
            return None
        log.retire()
        return self._move_away(log.directory, DELETED) if self.disk.exists(log.directory) else None

    def forget_topic_directory(self, topic: str) -> None:
        """Remove the directory of a topic whose partitions are gone; one that still holds something stays."""
        self.disk.remove_empty_dir(f"{self.data_dir}/{TOPICS}/{topic}")

    def _move_away(self, directory: str, room: str) -> str:
        target = f"{self.data_dir}/{room}"
        self.disk.make_dirs(target)
        topic, _, partition = directory.rpartition("/")
        path = f"{target}/{topic.rpartition('/')[2]}-{partition}-{uuid.uuid4().hex}"
        self.disk.rename(directory, path)
        return path

    def left_to_delete(self) -> list[str]:
        """Directories of deleted partitions that an earlier run did not get to remove."""
        return [
            f"{self.data_dir}/{DELETED}/{name}" for name in self.disk.list_dir(f"{self.data_dir}/{DELETED}")
        ]

    def checkpoint(self) -> list[LogCheckpoint]:
        return [
            describe(topic, index, log) for (topic, index), log in self.logs.items() if log.offline is None
        ]

    def close(self) -> None:
        """Flush everything and leave the marker that spares the next start its scan."""
        sound = True
        for log in self.logs.values():
            sound = log.close() and sound
        self.disk.sync_all()
        crc = write_checkpoint(self.disk, self.data_dir, self.checkpoint())
        if sound:
            mark_clean(self.disk, self.data_dir, crc)
