"""Makes a data directory from a backup, for a node that does not run: logs, their checkpoint, and last the metadata.

No node starts from the directory without the metadata, so a restore is complete or invisible.
"""

import os.path
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID, uuid4

from msgspec.structs import replace

from millstream.backup.folder import BackupFolder, out_of_room
from millstream.backup.log_writer import LogWriter
from millstream.backup.manifest import BackupError, Damaged, NoRoom, SegmentCopy, file_path
from millstream.backup.plan import Plan, PlannedPartition, PlannedTopic
from millstream.cluster.metadata.directory import create_replica
from millstream.cluster.metadata.names import id_text, readable_ids
from millstream.cluster.metadata.records import (
    ClusterCreated,
    ConfigChanged,
    ConfigResource,
    MetadataRecord,
    PartitionCreated,
    ProducerIdsAllocated,
    TopicCreated,
    encode_records,
)
from millstream.cluster.raft.entries import first_snapshot
from millstream.cluster.raft.membership import MemberKey, Membership
from millstream.config.definitions import resolve_topic_config
from millstream.config.errors import ConfigError
from millstream.config.topic import TopicConfig
from millstream.coordinator.groups.records import (
    CommittedOffset,
    GroupRecord,
    OffsetKey,
    decode_record,
    encode_record,
)
from millstream.protocol.checksum import crc32c
from millstream.protocol.internal_topics import OFFSETS_TOPIC
from millstream.protocol.record_batch import BatchHeader, CorruptBatch, iter_batches, read_header
from millstream.protocol.records import Record, encode_batch, iter_records
from millstream.runtime.clock import Clock
from millstream.runtime.disk import Disk
from millstream.storage.layout import partition_directory
from millstream.storage.log import PartitionLog
from millstream.storage.scan import scan_batches
from millstream.storage.segment_recovery import RecoveryReport
from millstream.storage.store import LOCK_FILE, DataDirectoryInUse, LogStore, PartitionSpec

# Ids that had been allocated but not used when the backup was made must not be allocated again.
PRODUCER_ID_GAP = 1_000_000
_OPEN_FILES = 200
# A restored disk needs room besides the records: indexes, checkpoints.
_SPARE_BYTES = 1 << 20


@dataclass(slots=True)
class Restored:
    cluster_id: str = ""
    topics: int = 0
    partitions: int = 0
    records: int = 0
    size_bytes: int = 0
    positions_set_back: int = 0


@dataclass(slots=True)
class Restorer:
    """`read` is called with the number of bytes read from the backup."""

    folder: BackupFolder
    disk: Disk
    clock: Clock
    data_dir: str
    node_id: int
    read: Callable[[int], None] = lambda _size: None
    new_id: Callable[[], UUID] = uuid4
    _epochs: dict[tuple[str, int], int] = field(default_factory=dict)
    _max_producer_id: int = -1
    _first_later_ms: int | None = None
    """The oldest record later than the plan's moment."""

    def restore(self, plan: Plan) -> Restored:
        self._require_place(plan)
        store = LogStore(self.disk, self.clock, self.data_dir, _OPEN_FILES)
        try:
            store.lock()
        except DataDirectoryInUse as error:
            raise BackupError(str(error)) from error
        try:
            return self._restore(plan, store)
        except OSError as error:
            self._clear()
            raise out_of_room(error, self.data_dir, self.disk) from error
        except BaseException:
            self._clear()
            raise

    def _require_place(self, plan: Plan) -> None:
        others = [name for name in self.disk.list_dir(self.data_dir) if name != LOCK_FILE]
        if others:
            raise BackupError(
                f"{self.data_dir} is not empty; a restore makes a new data directory: name another one, or remove it"
            )
        existing = self.data_dir
        while not self.disk.exists(existing):
            existing = os.path.dirname(existing) or "/"
        free = self.disk.free_bytes(existing)
        if free < plan.size_bytes + _SPARE_BYTES:
            raise NoRoom(
                f"no room in {self.data_dir}: {plan.size_bytes:,} bytes are to be restored, {free:,} are free"
            )

    def _clear(self) -> None:
        """Remove everything: the directory was empty at the start."""
        for name in self.disk.list_dir(self.data_dir):
            if name != LOCK_FILE:
                self.disk.remove_tree(f"{self.data_dir}/{name}")
                self.disk.unlink(f"{self.data_dir}/{name}")

    def _restore(self, plan: Plan, store: LogStore) -> Restored:
        restored = Restored(id_text(readable_ids(self.new_id)()), len(plan.topics))
        configs = {topic.name: _config(topic, plan.broker_configs) for topic in plan.topics}
        for topic in plan.topics:
            for partition in topic.partitions:
                self._write_log(topic, partition, configs[topic.name], plan.until_ms, restored)
        if not restored.records and self._first_later_ms is not None:
            moment = datetime.fromtimestamp(self._first_later_ms / 1000, UTC).isoformat(
                timespec="milliseconds"
            )
            raise BackupError(f"no message of the backup is as old as that; the oldest is of {moment}")
        self._open_logs(plan, configs, store)
        restored.partitions = len(store.logs)
        restored.positions_set_back = self._set_positions_back(plan, store)
        if not store.close():
            raise BackupError(f"{self.data_dir} could not be closed cleanly")
        self._write_metadata(plan, restored.cluster_id)
        return restored

    # -- logs

    def _write_log(
        self,
        topic: PlannedTopic,
        partition: PlannedPartition,
        config: TopicConfig,
        until_ms: int | None,
        restored: Restored,
    ) -> None:
        directory = partition_directory(self.data_dir, topic.name, partition.index)
        writer = LogWriter(
            self.disk,
            directory,
            bytes.fromhex(topic.topic_id),
            partition.log_start_offset,
            config.segment_bytes,
        )
        is_open = True
        try:
            for segment in partition.segments:
                for header, data in self._batches(topic, partition.index, segment):
                    is_later = (
                        until_ms is not None
                        and header.base_offset >= partition.whole_below
                        and header.max_timestamp > until_ms
                    )
                    if is_later and (
                        self._first_later_ms is None or header.max_timestamp < self._first_later_ms
                    ):
                        self._first_later_ms = header.max_timestamp
                    # The rest is read to the end too, so that the whole backup is verified.
                    is_open = is_open and not is_later
                    if is_open and header.last_offset >= partition.log_start_offset:
                        if header.base_offset < writer.next_offset:
                            raise Damaged(
                                f"{self._path(topic, partition.index, segment)} is damaged: offset"
                                f" {header.base_offset} where {writer.next_offset} was expected"
                            )
                        writer.append(header, data)
            writer.finish()
        finally:
            writer.discard()
        self._epochs[topic.name, partition.index] = max(writer.last_epoch, partition.leader_epoch) + 1
        self._max_producer_id = max(self._max_producer_id, writer.max_producer_id)
        restored.records += writer.record_count
        restored.size_bytes += writer.size_bytes

    def _path(self, topic: PlannedTopic, index: int, segment: SegmentCopy) -> str:
        return f"{self.folder.path}/{file_path(topic.topic_id, index, segment)}"

    def _batches(
        self, topic: PlannedTopic, index: int, segment: SegmentCopy
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Verify every batch of a file by its checksum, and the file by the manifest's."""
        path = self._path(topic, index, segment)
        if not self.folder.disk.exists(path):
            raise Damaged(f"{path} is missing")
        file = self.folder.disk.open(path, read_only=True)
        try:
            size = file.size()
            if size != segment.size_bytes:
                raise Damaged(f"{path} holds {size} bytes, {segment.size_bytes} were written")
            checksum = 0
            for _, header, data in scan_batches(file, 0, size):
                checksum = crc32c(data, checksum)
                yield header, data
                self.read(len(data))
        except CorruptBatch as error:
            raise Damaged(f"{path} is damaged at byte {error.position}: {error.message}") from error
        finally:
            file.close()
        if checksum != segment.checksum:
            raise Damaged(f"{path} fails its checksum: it was changed or is damaged")

    def _open_logs(self, plan: Plan, configs: Mapping[str, TopicConfig], store: LogStore) -> None:
        """As a node does after a crash: scan, index and sync everything."""
        problems: list[str] = []

        def report(found: RecoveryReport) -> None:
            problems.extend(found.damages)
            if found.cut_bytes:
                problems.append(f"{found.directory}: {found.cut_bytes} bytes are not readable")

        store.load(
            (
                PartitionSpec(topic.name, index, bytes.fromhex(topic.topic_id), configs[topic.name])
                for topic in plan.topics
                for index in range(topic.partition_count)
            ),
            report,
        )
        problems += [str(log.offline) for log in store.logs.values() if log.offline is not None]
        if problems:
            raise BackupError(f"what was written cannot be read back: {problems[0]}")

    def _set_positions_back(self, plan: Plan, store: LogStore) -> int:
        ends = {place: log.log_end_offset for place, log in store.logs.items()}
        selected = {(topic.name, each.index) for topic in plan.topics for each in topic.partitions}
        count = 0
        for place, log in store.logs.items():
            if place[0] == OFFSETS_TOPIC and place in selected:
                known = {each: end for each, end in ends.items() if each in selected}
                count += set_back(log, known, self._epochs[place], self.clock.now_ms())
        return count

    # -- metadata

    def _write_metadata(self, plan: Plan, cluster_id: str) -> None:
        key = MemberKey(self.node_id, self.new_id())
        records = encode_records(list(self._records(plan, cluster_id)))
        stored = create_replica(self.disk, self.data_dir, key, first_snapshot(Membership((key,)), records))
        stored.wal.close()

    def _records(self, plan: Plan, cluster_id: str) -> Iterator[MetadataRecord]:
        yield ClusterCreated(cluster_id)
        for name, value in plan.broker_configs.items():
            yield ConfigChanged(ConfigResource.BROKER, "", name, value)
        alone = (self.node_id,)
        for topic in plan.topics:
            topic_id = UUID(hex=topic.topic_id)
            yield TopicCreated(topic.name, topic_id)
            for name, value in topic.configs.items():
                yield ConfigChanged(ConfigResource.TOPIC, topic.name, name, value)
            for index in range(topic.partition_count):
                epoch = self._epochs.get((topic.name, index), 0)
                yield PartitionCreated(topic_id, index, alone, alone, self.node_id, epoch)
        yield ProducerIdsAllocated(self._max_producer_id + 1 + PRODUCER_ID_GAP)


def _config(topic: PlannedTopic, broker_configs: Mapping[str, str]) -> TopicConfig:
    try:
        return resolve_topic_config(topic.configs, broker_configs)
    except ConfigError as error:
        raise BackupError(
            f"topic {topic.name} has a setting that this version does not take: {error}"
        ) from error


_READ_BYTES = 1 << 20
_OPEN_LIMIT_BYTES = 256 << 20


def set_back(log: PartitionLog, ends: Mapping[tuple[str, int], int], leader_epoch: int, now_ms: int) -> int:
    """Append a new commit for each offset of this partition that is beyond its log's end; returns their number."""
    positions: dict[OffsetKey, CommittedOffset] = {}
    for record in _records(log):
        found = decode_record(record.key, record.value) if record.key is not None else None
        if found is None or not isinstance(found.key, OffsetKey):
            continue
        if isinstance(found.value, CommittedOffset):
            positions[found.key] = found.value
        else:
            positions.pop(found.key, None)
    ahead = [
        GroupRecord(key, replace(position, offset=end))
        for key, position in positions.items()
        if (end := ends.get((key.topic, key.partition))) is not None and position.offset > end
    ]
    if ahead:
        records = [Record(number, now_ms, *encode_record(each)) for number, each in enumerate(ahead)]
        batch = memoryview(bytearray(encode_batch(records)))
        log.append(batch, read_header(batch), leader_epoch, now_ms)
    return len(ahead)


def _records(log: PartitionLog) -> Iterator[Record]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, _READ_BYTES, log.log_end_offset)
        if not read.data:
            return
        for at, header in iter_batches(read.data):
            if not header.is_control:
                yield from iter_records(read.data[at : at + header.size_bytes], _OPEN_LIMIT_BYTES)
        offset = read.next_offset
