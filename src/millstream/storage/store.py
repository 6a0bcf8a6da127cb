"""All partition logs of one data directory: opening them at start, making and removing them, the checkpoint."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID, uuid4

from millstream.config.topic import TopicConfig
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.clock import Clock
from millstream.runtime.disk import NO_ROOM, Disk
from millstream.storage.checkpoint import (
    LogCheckpoint,
    are_files_there,
    describe,
    later_log,
    mark_clean,
    read_checkpoint,
    take_clean_marker,
    write_checkpoint,
)
from millstream.storage.layout import (
    IDENTITY_FILE,
    TOPICS,
    decode_identity,
    partition_directory,
)
from millstream.storage.log import PartitionLog
from millstream.storage.open_files import OpenFiles
from millstream.storage.recovery import make_durable, recover_log
from millstream.storage.segment_recovery import ANY_EPOCH, RecoveryReport

LOCK_FILE = ".lock"
DELETED = "deleted"
STRAY = "stray"
_MOVED_NAME_LENGTH = 150
# From this many logs on, one sync of the file system takes less time than theirs.
_MANY_LOGS = 64


class PartitionSpec(NamedTuple):
    topic: str
    partition: int
    topic_id: bytes
    config: TopicConfig
    leader_epoch: int = ANY_EPOCH
    """The newest there is: no batch can be of a later one."""
    committed: int | None = None
    """Up to where it is known that other nodes have it; None where no other keeps the partition."""

    @property
    def key(self) -> tuple[bytes, int]:
        return self.topic_id, self.partition


class DataDirectoryInUse(Exception):
    pass


class LogStore:
    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        data_dir: str,
        max_open_files: int,
        new_id: Callable[[], UUID] = uuid4,
    ) -> None:
        self.disk = disk
        self.data_dir = data_dir
        self.files = OpenFiles(disk, max_open_files)
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.was_clean = False
        self.broker_epoch = -1
        """In which this node is registered; the marker of a clean stop repeats it."""
        self._clock = clock
        self._new_id = new_id
        self._unopened: dict[tuple[str, int], LogCheckpoint] = {}
        self._unsynced: list[PartitionLog] = []

    def lock(self) -> None:
        missing, changed = self.data_dir, []
        while missing and not self.disk.exists(missing):
            missing = missing.rpartition("/")[0]
            changed.append(missing or "/")
        self.disk.make_dirs(self.data_dir)
        for directory in changed:
            self.disk.sync_dir(directory)
        if not self.disk.lock(f"{self.data_dir}/{LOCK_FILE}"):
            raise DataDirectoryInUse(
                f"{self.data_dir} is in use by another node; stop it or choose another directory with --data"
            )

    def load(self, partitions: Iterable[PartitionSpec], progress: Callable[[RecoveryReport], None]) -> None:
        """Open every log: from the checkpoint after a clean stop, otherwise by recovery."""
        self.disk.make_dirs(f"{self.data_dir}/{TOPICS}")
        found = read_checkpoint(self.disk, self.data_dir)
        entries, crc = found if found is not None else ([], -1)
        self.was_clean = take_clean_marker(self.disk, self.data_dir, crc) and are_files_there(
            self.disk, self.data_dir, entries
        )
        known = {(entry.topic, entry.partition, entry.topic_id): entry for entry in entries}
        for spec in partitions:
            entry = known.get(spec[:3])
            if entry is None and found is not None:
                entry = later_log(*spec[:3])
            self.logs[spec.topic, spec.partition] = self._open(spec, entry, progress)
        if not self.was_clean:
            self._make_durable()
            self._write_first_checkpoint()
            self._set_strays_aside()

    def _set_strays_aside(self) -> None:
        """A crash can bring back the directory of a deleted partition. Nobody serves it; it is moved, not deleted."""
        owned = {log.directory for log in self.logs.values()}
        topics = f"{self.data_dir}/{TOPICS}"
        for topic in self.disk.list_dir(topics):
            # What cannot be moved does no harm, and a file that is no directory of ours is nobody's business.
            with suppress(OSError):
                for name in self.disk.list_dir(f"{topics}/{topic}"):
                    directory = f"{topics}/{topic}/{name}"
                    if directory not in owned:
                        self._move_away(directory, STRAY)
                self.forget_topic_directory(topic)

    def strays(self) -> list[str]:
        """Directories that belong to no topic, for somebody to look at and to remove."""
        return [f"{self.data_dir}/{STRAY}/{name}" for name in self.disk.list_dir(f"{self.data_dir}/{STRAY}")]

    def _open(
        self, spec: PartitionSpec, entry: LogCheckpoint | None, progress: Callable[[RecoveryReport], None]
    ) -> PartitionLog:
        directory = partition_directory(self.data_dir, spec.topic, spec.partition)
        if self.was_clean and entry is not None:
            state = entry.state(self.files, directory)
            return PartitionLog(self.files, directory, spec.topic_id, spec.config, state)
        try:
            self._move_if_foreign(directory, spec.topic_id)
            state, report = recover_log(
                self.files,
                directory,
                spec.config,
                entry,
                self._clock.now_ms(),
                spec.leader_epoch,
                committed=spec.committed,
            )
        except (KafkaError, OSError) as error:
            log = PartitionLog(self.files, directory, spec.topic_id, spec.config)
            log.offline = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory} cannot be opened: {error}")
            if entry is not None:
                self._unopened[spec.topic, spec.partition] = entry
            progress(RecoveryReport(directory, damages=[str(error)]))
            return log
        progress(report)
        log = PartitionLog(self.files, directory, spec.topic_id, spec.config, state)
        if not report.is_synced:
            self._unsynced.append(log)
        return log

    def _make_durable(self) -> None:
        """Acknowledgements build on what was recovered from now on."""
        logs, self._unsynced = self._unsynced, []
        if len(logs) > _MANY_LOGS:
            try:
                self.disk.sync_all(self.data_dir)
            except OSError:
                pass
            else:
                return
        for log in logs:
            try:
                make_durable(log)
            except OSError as error:
                log.storage_failed(error)

    def _write_first_checkpoint(self) -> None:
        """What was just scanned need not be scanned again. A full disk is no reason not to start."""
        entries = self.checkpoint()
        try:
            write_checkpoint(self.disk, self.data_dir, entries)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
        else:
            self.checkpoint_written(entries)

    def _move_if_foreign(self, directory: str, topic_id: bytes) -> None:
        """A directory of an earlier topic of the same name is not this partition's: move it out of the way.

        One without an identity was never synced, so it holds nothing that must be kept and may be anyone's.
        """
        if not self.disk.list_dir(directory):
            return
        identity = f"{directory}/{IDENTITY_FILE}"
        owner = decode_identity(self.disk.read(identity)) if self.disk.exists(identity) else b""
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

    def remove(self, topic: str, index: int, room: str = DELETED) -> str | None:
        """Take a log out of service; returns the path that is left to delete, if any."""
        log = self.logs.pop((topic, index), None)
        self._unopened.pop((topic, index), None)
        if log is None:
            return None
        log.retire()
        return self._move_away(log.directory, room) if self.disk.exists(log.directory) else None

    def forget_topic_directory(self, topic: str) -> None:
        """Remove the directory of a topic whose partitions are gone; one that still holds something stays."""
        self.disk.remove_empty_dir(f"{self.data_dir}/{TOPICS}/{topic}")

    def _move_away(self, directory: str, room: str) -> str:
        target = f"{self.data_dir}/{room}"
        self.disk.make_dirs(target)
        topic, _, partition = directory.rpartition("/")
        # A topic's name may be as long as a file name can be: there would be no room for the rest.
        name = topic.rpartition("/")[2][:_MOVED_NAME_LENGTH]
        path = f"{target}/{name}-{partition}-{self._new_id().hex}"
        self.disk.rename(directory, path)
        return path

    def left_to_delete(self) -> list[str]:
        """Directories of deleted partitions that an earlier run did not get to remove."""
        return [
            f"{self.data_dir}/{DELETED}/{name}" for name in self.disk.list_dir(f"{self.data_dir}/{DELETED}")
        ]

    def checkpoint(self) -> list[LogCheckpoint]:
        """What is known of every log. One that is offline is described as it was when it was last sound."""
        return [
            self._unopened.get((topic, index)) or describe(topic, index, log)
            for (topic, index), log in self.logs.items()
        ]

    def checkpoint_written(self, entries: Iterable[LogCheckpoint]) -> None:
        """The checkpoint is on disk; logs may let go of what only an older one would need."""
        for entry in entries:
            log = self.logs.get((entry.topic, entry.partition))
            if log is None or log.topic_id != entry.topic_id:
                continue
            # Its end may have been cut while the checkpoint was written.
            if log.truncations == entry.truncations:
                log.checkpointed(entry.flushed_position[0])

    def close(self) -> bool:
        """Flush everything and leave the marker that spares the next start its scan; False when there is none."""
        sound = True
        for log in self.logs.values():
            sound = log.close() and sound
        try:
            self.disk.sync_all(self.data_dir)
            crc = write_checkpoint(self.disk, self.data_dir, self.checkpoint())
            if sound:
                mark_clean(self.disk, self.data_dir, crc, self.broker_epoch)
        except OSError:
            return False
        return sound
