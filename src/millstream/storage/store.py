"""All partition logs of one data directory: opening them at start, making and removing them, the checkpoint."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID, uuid4

import msgspec

from millstream.config.topic import TopicConfig
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.clock import Clock
from millstream.runtime.disk import NO_ROOM, Disk
from millstream.runtime.sometimes import sometimes
from millstream.storage.begun import BegunLog, begun_logs, forget_begun
from millstream.storage.checkpoint import (
    LogCheckpoint,
    are_files_there,
    describe,
    described,
    later_log,
    mark_clean,
    read_checkpoint,
    take_clean_marker,
    write_checkpoint,
)
from millstream.storage.flush import OwnDirectory
from millstream.storage.identity import NO_INCARNATION, Identity, read_identity
from millstream.storage.layout import (
    EPOCHS_FILE,
    IDENTITY_FILE,
    LOG_SUFFIX,
    TOPICS,
    offset_in,
    parent_directories,
    partition_directory,
)
from millstream.storage.leader_epochs import LeaderEpochs
from millstream.storage.log import PartitionLog
from millstream.storage.log_state import LogState
from millstream.storage.open_files import OpenFiles
from millstream.storage.recovery import LogRecovery, make_durable
from millstream.storage.segment_recovery import ANY_EPOCH, RecoveryReport

LOCK_FILE = ".lock"
DELETED = "deleted"
STRAY = "stray"
_MOVED_NAME_LENGTH = 150
# From this many logs on, one sync of the file system is faster than a sync of each log.
_MANY_LOGS = 64


class PartitionSpec(NamedTuple):
    topic: str
    partition: int
    topic_id: bytes
    config: TopicConfig
    leader_epoch: int = ANY_EPOCH
    """The newest leader epoch: no batch can have a later one."""
    committed: int | None = None
    """The offset up to which other replicas are known to have the records; None if there are no other replicas."""
    incarnation: bytes = NO_INCARNATION
    """Of the log that `committed` refers to: a different log in its place may have fewer records."""

    def committed_in(self, incarnation: bytes) -> int | None:
        is_another = self.incarnation and self.incarnation != incarnation
        return 0 if is_another and self.committed is not None else self.committed

    @property
    def key(self) -> tuple[bytes, int]:
        return self.topic_id, self.partition


class DataDirectoryInUse(Exception):
    pass


class LogStore:
    def __init__(
        self, disk: Disk, clock: Clock, data_dir: str, max_open_files: int, new_id: Callable[[], UUID] = uuid4
    ) -> None:
        self.disk = disk
        self.data_dir = data_dir
        self.files = OpenFiles(disk, max_open_files)
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.was_clean = False
        self.broker_epoch = -1
        """The epoch of this node's registration; the marker of a clean stop repeats it."""
        self._clock = clock
        self._new_id = new_id
        self._entries: dict[tuple[str, int, bytes], LogCheckpoint] = {}
        self._has_checkpoint = False
        self._begun: set[tuple[str, str]] = set()
        """Places of logs that were first written between the last checkpoint and this start."""
        self._unopened: dict[tuple[str, int], LogCheckpoint] = {}
        self._leaving: list[tuple[str, OwnDirectory]] = []
        """Directories of removed logs in which a thread was writing."""
        self._unsynced: list[tuple[PartitionSpec, PartitionLog]] = []

    def lock_or_advise(self) -> None:
        """Like `lock`, but an operating system error tells the user what to do."""
        try:
            self.lock()
        except OSError as error:
            advice = (
                f"cannot write to {self.data_dir}: {error.strerror}; choose another directory with --data"
            )
            raise OSError(error.errno, advice) from None

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
        # Made now, because topics are also deleted when the disk is full.
        with suppress(OSError):
            self.disk.make_dirs(f"{self.data_dir}/{DELETED}")
        found = read_checkpoint(self.disk, self.data_dir)
        entries, crc = found if found is not None else ([], -1)
        self.was_clean = take_clean_marker(self.disk, self.data_dir, crc) and are_files_there(
            self.disk, self.data_dir, entries
        )
        self._entries = {(entry.topic, entry.partition, entry.topic_id): entry for entry in entries}
        self._has_checkpoint = found is not None
        begun = begun_logs(self.disk, self.data_dir)
        self._begun = {each.place for each in begun}
        for spec in partitions:
            self.logs[spec.topic, spec.partition] = self._open(spec, progress)
        if not self.was_clean or self._unsynced:
            self._make_durable()
            self._write_first_checkpoint(begun)
        self._entries.clear()
        if not self.was_clean:
            self._set_strays_aside()

    def _set_strays_aside(self) -> None:
        """Move directories of unknown partitions away: a crash can bring back the directory of a deleted one."""
        owned = {log.directory for log in self.logs.values()}
        topics = f"{self.data_dir}/{TOPICS}"
        for topic in self.disk.list_dir(topics):
            # A directory that cannot be moved does no harm, and files here are not ours.
            with suppress(OSError):
                for name in self.disk.list_dir(f"{topics}/{topic}"):
                    directory = f"{topics}/{topic}/{name}"
                    if directory not in owned:
                        self._move_away(directory, STRAY)
                self.forget_topic_directory(topic)

    def strays(self) -> list[str]:
        """Directories that belong to no topic, for an operator to inspect and remove."""
        return [f"{self.data_dir}/{STRAY}/{name}" for name in self.disk.list_dir(f"{self.data_dir}/{STRAY}")]

    def _open(self, spec: PartitionSpec, progress: Callable[[RecoveryReport], None]) -> PartitionLog:
        directory = partition_directory(self.data_dir, spec.topic, spec.partition)
        entry = self._entries.get(spec[:3])
        if self.was_clean and entry is None:
            # The clean stop recorded no such log: a directory here belongs to an earlier topic of the same name.
            return self.create(spec)
        # No other replica can repair damage, but an operator may have restored files while the node was stopped.
        is_left_alone = entry is not None and not (entry.damaged and spec.committed is None)
        if self.was_clean and entry is not None and is_left_alone and not entry.has_holes:
            return self._open_as_described(spec, directory, entry, progress)
        try:
            identity = self._identity_in(directory, spec, entry)
            recovery = LogRecovery(
                self.files,
                directory,
                spec.config,
                self._known_of(spec, directory, entry, identity),
                self._clock.now_ms(),
                self._with_incarnation(identity or _lost_identity(spec, entry)),
                spec.leader_epoch,
                committed=spec.committed if identity is None else spec.committed_in(identity.incarnation),
                was_written=self._was_written(spec, directory, entry),
                found=identity,
            )
            state, report = recovery.recover()
        except (KafkaError, OSError) as error:
            log = PartitionLog(self.files, directory, spec.topic_id, spec.config)
            log.health.offline = KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{directory} cannot be opened: {error}"
            )
            if entry is not None:
                log.place.identity = Identity(spec.topic_id, entry.incarnation)
            self._unopened[spec.topic, spec.partition] = entry or later_log(*spec[:3])
            progress(RecoveryReport(directory, damages=[str(error)]))
            return log
        progress(report)
        log = PartitionLog(self.files, directory, spec.topic_id, spec.config, state)
        for name in report.garbage:
            log.place.remove(name)
        if not report.is_synced:
            self._unsynced.append((spec, log))
        return log

    def _with_incarnation(self, identity: Identity) -> Identity:
        if identity.incarnation:
            return identity
        return msgspec.structs.replace(identity, incarnation=self._new_id().bytes)

    def _was_written(self, spec: PartitionSpec, directory: str, entry: LogCheckpoint | None) -> bool:
        """Whether the log may have had records, judged without its directory."""
        if not self._has_checkpoint or (entry is not None and (entry.segments or entry.is_doubtful)):
            return True
        return BegunLog.of(spec.topic_id, directory).place in self._begun

    def _known_of(
        self, spec: PartitionSpec, directory: str, entry: LogCheckpoint | None, identity: Identity | None
    ) -> LogCheckpoint | None:
        if entry is None:
            return later_log(*spec[:3]) if self._has_checkpoint else None
        is_read = identity is None or identity.incarnation != NO_INCARNATION
        if not is_read and not self.disk.list_dir(directory):
            # Synced files are missing, whatever removed them.
            return entry
        return described(entry, identity, spec.config)

    def _open_as_described(
        self,
        spec: PartitionSpec,
        directory: str,
        entry: LogCheckpoint,
        progress: Callable[[RecoveryReport], None],
    ) -> PartitionLog:
        state = entry.state(self.files, directory)
        if not state.incarnation:
            state.incarnation = self._new_id().bytes
            if state.segments:
                # Written by an earlier version: until this is on disk, no checkpoint is valid for it after a crash.
                identity = Identity(spec.topic_id, state.incarnation)
                state.unwritten[f"{directory}/{IDENTITY_FILE}"] = identity.encode()
        if state.damaged:
            progress(RecoveryReport(directory, damaged_segments=set(state.damaged)))
        return PartitionLog(self.files, directory, spec.topic_id, spec.config, state)

    def _make_durable(self) -> None:
        """Sync the recovered records: from now on acknowledgements rely on them."""
        logs, self._unsynced = self._unsynced, []
        if len(logs) > _MANY_LOGS:
            try:
                self.disk.sync_all(self.data_dir)
            except OSError:
                pass
            else:
                return
        for spec, log in logs:
            try:
                make_durable(log)
            except OSError as error:
                log.health.use_failed(error)
                # No more is known to be on disk than before.
                self._unopened[spec.topic, spec.partition] = self._entries.get(spec[:3]) or later_log(
                    *spec[:3]
                )

    def _write_first_checkpoint(self, begun: Iterable[BegunLog]) -> None:
        """Save the result of recovery, so that it is not repeated. A full disk does not prevent the start."""
        entries = self.checkpoint()
        try:
            write_checkpoint(self.disk, self.data_dir, entries)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
        else:
            self.checkpoint_written(entries)
            # Markers of logs in doubt stay: the next recovery needs them too.
            in_doubt = {
                BegunLog.of(log.place.identity.topic_id, log.directory).place
                for log in self.logs.values()
                if log.health.is_doubtful or log.health.offline is not None
            }
            forget_begun(self.disk, self.data_dir, (each for each in begun if each.place not in in_doubt))

    def _identity_in(
        self, directory: str, spec: PartitionSpec, entry: LogCheckpoint | None
    ) -> Identity | None:
        """The directory's identity; None if the directory is this partition's but has no identity file.

        A directory of an earlier topic of the same name is moved away. So is one that was never flushed: nothing in it
        must be kept, and its owner is unknown. If it has records, it may have been flushed and have lost its small
        files: then the new log is in doubt.
        """
        topic_id = spec.topic_id
        names = self.disk.list_dir(directory)
        if not names:
            return Identity(topic_id)
        identity = read_identity(self.disk, directory)
        if identity is not None and identity.topic_id == topic_id:
            return identity
        # The first flush writes the leader epochs, after the identity.
        was_flushed = EPOCHS_FILE in names or (entry is not None and entry.flushed_position > (0, 0))
        if identity is None and was_flushed and not self._seems_earlier(directory, spec, entry):
            return None
        has_records = any(
            self.disk.size(f"{directory}/{name}") for name in names if offset_in(name, LOG_SUFFIX) is not None
        )
        moved = self._move_away(directory, STRAY)
        if identity is not None or not has_records:
            return Identity(topic_id)
        try:
            return self._begin_in_doubt(directory, topic_id)
        except OSError:
            self.disk.rename(moved, directory)
            raise

    def _seems_earlier(self, directory: str, spec: PartitionSpec, entry: LogCheckpoint | None) -> bool:
        """Whether a directory without an identity probably belongs to an earlier topic of the same name."""
        if entry is not None:
            return False
        if any(key[:2] == spec[:2] for key in self._entries):
            return True
        with suppress(KafkaError):
            path = f"{directory}/{EPOCHS_FILE}"
            return LeaderEpochs.decode(self.disk.read(path), path).latest > spec.leader_epoch
        return False

    def _begin_in_doubt(self, directory: str, topic_id: bytes) -> Identity:
        sometimes("a directory with records and without an identity was set aside")
        identity = Identity(topic_id, self._new_id().bytes)
        self.disk.make_dirs(directory)
        self.disk.write_atomically(f"{directory}/{IDENTITY_FILE}", identity.encode())
        RecoveryReport(directory).doubt(self.disk)
        for parent in parent_directories(directory):
            self.disk.sync_dir(parent)
        return identity

    def create(self, spec: PartitionSpec) -> PartitionLog:
        """A new, empty log. Nothing is written until its first append."""
        directory = partition_directory(self.data_dir, spec.topic, spec.partition)
        self._wait_until_left(directory)
        if self.disk.exists(directory):
            sometimes("the directory of an earlier topic was in the way of a new log")
            self._move_away(directory, STRAY)
        # A new incarnation, even for the same topic: no checkpoint describes this log yet.
        state = LogState(incarnation=self._new_id().bytes)
        log = PartitionLog(self.files, directory, spec.topic_id, spec.config, state)
        self.logs[spec.topic, spec.partition] = log
        return log

    def remove(self, topic: str, index: int, room: str = DELETED) -> str | None:
        """Take a log out of service; returns the path that is left to delete, if any."""
        log = self._retire(topic, index)
        if log is None:
            return None
        self.let_go(log)
        return self._move_away(log.directory, room) if self.disk.exists(log.directory) else None

    def remove_topic(self, topic: str, indexes: Iterable[int]) -> str | None:
        """Take a topic's logs out of service; call `let_go` for each later. Returns the path that is left to delete.

        One rename moves all directories, however many: the name is free for the next topic at once, and a crash leaves
        either all of them in place or none.
        """
        logs = [self._retire(topic, index) for index in indexes]
        directory = f"{self.data_dir}/{TOPICS}/{topic}"
        if not self.disk.exists(directory):
            return None
        own = {log.directory for log in logs if log is not None}
        for name in self.disk.list_dir(directory):
            if f"{directory}/{name}" not in own:
                # Directories that are not the topic's are not deleted with it.
                with suppress(OSError):
                    self._move_away(f"{directory}/{name}", STRAY)
        return self._move_away(directory, DELETED)

    def _retire(self, topic: str, index: int) -> PartitionLog | None:
        log = self.logs.pop((topic, index), None)
        self._unopened.pop((topic, index), None)
        if log is not None:
            log.retire()
            if log.place.ownership.is_held:
                self._leaving.append((log.directory, log.place.ownership))
        return log

    def let_go(self, log: PartitionLog) -> None:
        """Close the files of a log that was taken out of service, and remove its `begun` marker."""
        log.let_go()
        if log.segments:
            identity = log.place.identity
            begun = BegunLog.of(identity.topic_id, log.directory, identity.incarnation)
            forget_begun(self.disk, self.data_dir, (begun,))

    def _wait_until_left(self, directory: str) -> None:
        """Wait for a thread that still writes there by name: it would write into the new log. It stops after its
        current file.
        """
        for path, own_directory in self._leaving:
            if path == directory:
                own_directory.wait_until_left()
        self._leaving = [each for each in self._leaving if each[1].is_held]

    def forget_topic_directory(self, topic: str) -> None:
        """Remove the topic's directory if it is empty."""
        self.disk.remove_empty_dir(f"{self.data_dir}/{TOPICS}/{topic}")

    def _move_away(self, directory: str, room: str) -> str:
        """Move the directory of a partition or of a whole topic; returns the new path."""
        target = f"{self.data_dir}/{room}"
        self.disk.make_dirs(target)
        topic, *partition = directory.removeprefix(f"{self.data_dir}/{TOPICS}/").split("/")
        # A topic's name may be as long as a file name may be, which leaves no room for the rest.
        path = f"{target}/{'-'.join((topic[:_MOVED_NAME_LENGTH], *partition, self._new_id().hex))}"
        self.disk.rename(directory, path)
        return path

    def left_to_delete(self) -> list[str]:
        """Directories of deleted topics and partitions that an earlier run did not remove."""
        return [
            f"{self.data_dir}/{DELETED}/{name}" for name in self.disk.list_dir(f"{self.data_dir}/{DELETED}")
        ]

    def checkpoint(self) -> list[LogCheckpoint]:
        """An entry for every log. A log that could not be opened keeps its former entry."""
        return list(self.entries())

    def entries(self) -> Iterator[LogCheckpoint]:
        """As `checkpoint`; logs may be created and removed between two entries."""
        for topic, index in list(self.logs):
            log = self.logs.get((topic, index))
            if log is not None:
                yield self._unopened.get((topic, index)) or describe(topic, index, log)

    def checkpoint_written(self, entries: Iterable[LogCheckpoint]) -> None:
        """The checkpoint is on disk: logs may drop what only an older one would need."""
        for entry in entries:
            log = self._log_of(entry)
            if log is None:
                continue
            numbers = dict(entry.numbers)
            log.place.described({each[0]: numbers.get(each[0], 0) for each in entry.segments})
            # The log may have been truncated while the checkpoint was written.
            if log.truncations == entry.truncations:
                log.checkpointed(entry.flushed_position[0])

    def has_removed(self, entries: Iterable[LogCheckpoint]) -> bool:
        """Whether a log in these entries was removed since: then another checkpoint should follow."""
        return any(self._log_of(entry) is None for entry in entries)

    def _log_of(self, entry: LogCheckpoint) -> PartitionLog | None:
        """The log that the entry describes; None if it was removed or recreated."""
        log = self.logs.get((entry.topic, entry.partition))
        if log is None or (log.place.identity.topic_id, log.place.identity.incarnation) != (
            entry.topic_id,
            entry.incarnation,
        ):
            return None
        return log

    def close(self) -> bool:
        """Flush everything and write the marker that spares the next start a scan; False if it was not written."""
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


def _lost_identity(spec: PartitionSpec, entry: LogCheckpoint | None) -> Identity:
    return Identity(spec.topic_id, acknowledges_early=entry is not None and entry.acknowledges_early)
