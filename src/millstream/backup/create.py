"""Makes a backup of a running cluster: asks where its logs end, copies everything below, then writes the manifest.

Committed offsets are in an internal topic and copied like any other. Its end is asked for first, so that no committed
offset in the backup is beyond the end of its log.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from millstream.backup.copying import SEGMENT_BYTES, Extent, PartitionCopier
from millstream.backup.folder import BackupFolder, out_of_room
from millstream.backup.manifest import (
    Damaged,
    Manifest,
    PartitionCopy,
    SegmentCopy,
    Selection,
    TopicCopy,
    name_of,
)
from millstream.backup.source import (
    CLEANUP_POLICY,
    COMPACT,
    Place,
    TopicSettings,
    broker_configs,
    log_bytes,
    offsets,
    topic_settings,
)
from millstream.client.errors import ClientError, UnknownTopicError
from millstream.client.wire.cluster import Cluster
from millstream.client.wire.requests import EARLIEST, LATEST
from millstream.protocol.metadata import TopicMetadata
from millstream.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class Progress:
    """Callbacks: the expected total in bytes first, then the size of each piece, and notes for the user."""

    expect: Callable[[int], None] = lambda _size: None
    copied: Callable[[int], None] = lambda _size: None
    note: Callable[[str], None] = lambda _text: None


@dataclass(frozen=True, slots=True)
class _Known:
    """A partition's files in earlier backups."""

    segments: tuple[SegmentCopy, ...]
    must_be_compared: bool
    """Compare by checksum: leader epochs reveal neither compaction nor another cluster."""


@dataclass(slots=True)
class BackupMaker:
    cluster: Cluster
    folder: BackupFolder
    clock: Clock
    version: str
    progress: Progress
    segment_bytes: int = SEGMENT_BYTES
    _copied_bytes: int = 0

    def make(self, source: str, selection: Selection) -> Manifest:
        cluster = self.cluster
        topics = selection.of_cluster(cluster.topics(None))
        try:
            self.folder.open_for_writing()
            return self._make(source, topics, selection)
        except ClientError:
            # Some of these are OSErrors too, but not of the disk.
            raise
        except OSError as error:
            # Do not leave a full disk full until the next backup.
            with suppress(OSError):
                self._manifests()
            raise out_of_room(error, self.folder.path, self.folder.disk) from error

    def _make(self, source: str, topics: list[TopicMetadata], selection: Selection) -> Manifest:
        known = self._known()
        cluster = self.cluster
        settings = cluster.patiently(
            "the topics' settings cannot be read",
            lambda: topic_settings(cluster, (name_of(topic) for topic in topics)),
        )
        defaults = cluster.patiently("the brokers' settings cannot be read", lambda: broker_configs(cluster))
        backup_id = self.folder.new_id(self.clock.now_ms())
        started_ms = self.clock.now_ms()
        extents = self._extents(topics, selection)
        cut_ms = self.clock.now_ms()
        self._expect(extents, known)
        copies = []
        for topic in topics:
            copy = self._topic(topic, settings.get(name_of(topic)), extents, known)
            if copy is None:
                self.progress.note(f"topic {topic.name} was deleted while it was copied; it is left out")
            else:
                copies.append(copy)
        manifest = Manifest(
            backup_id,
            cluster.cluster_id,
            source,
            self.version,
            started_ms,
            cut_ms,
            self.clock.now_ms(),
            self._copied_bytes,
            defaults,
            tuple(copies),
        )
        self.folder.commit(manifest)
        return manifest

    def _manifests(self) -> list[Manifest]:
        """The readable manifests; removes files that no backup needs."""
        manifests = []
        is_whole = True
        for backup_id in self.folder.backup_ids():
            try:
                manifests.append(self.folder.read(backup_id))
            except Damaged as error:
                is_whole = False
                self.progress.note(f"{error}; its files are left alone and not built upon")
        if is_whole:
            self.folder.remove_unnamed(manifests)
        return manifests

    def _known(self) -> dict[tuple[str, int], _Known]:
        """By topic id and partition, from the newest backup that has it."""
        known: dict[tuple[str, int], _Known] = {}
        for manifest in self._manifests():
            for topic in manifest.topics:
                was_compacted = COMPACT in topic.configs.get(CLEANUP_POLICY, "")
                # A cluster restored from this folder has diverged since, perhaps under the same epochs.
                is_foreign = manifest.cluster_id != self.cluster.cluster_id
                for each in topic.partitions:
                    known[topic.topic_id, each.index] = _Known(each.segments, was_compacted or is_foreign)
        return known

    def _extents(self, topics: Iterable[TopicMetadata], selection: Selection) -> dict[Place, Extent]:
        """The start and end of each log, those of internal topics first."""
        extents: dict[Place, Extent] = {}
        for is_internal in (True, False):
            places = [
                Place(name_of(topic), topic.topic_id, each.partition)
                for topic in topics
                if topic.is_internal == is_internal
                for each in topic.partitions
                if selection.has(name_of(topic), each.partition)
            ]
            ends = self._ask(places, LATEST)
            starts = self._ask(places, EARLIEST)
            for place, end in ends.items():
                # The start may have moved beyond the end of a moment ago.
                start = starts.get(place, end)
                extents[place] = Extent(start, max(start, end))
        return extents

    def _expect(self, extents: Mapping[Place, Extent], known: Mapping[tuple[str, int], _Known]) -> None:
        """Roughly how much there is to copy; without it the bar shows no total."""
        try:
            sizes = log_bytes(self.cluster)
        except (OSError, ClientError):
            self.cluster.close()
            return
        total = 0
        for place in extents:
            before = known.get((place.topic_id.hex(), place.index))
            there = sum(each.size_bytes for each in before.segments) if before is not None else 0
            total += max(0, sizes.get((place.topic, place.index), 0) - there)
        self.progress.expect(total)

    def _ask(self, places: list[Place], timestamp: int) -> Mapping[Place, int]:
        return self.cluster.patiently(
            "the nodes do not say where their logs begin and end",
            lambda: offsets(self.cluster, places, timestamp),
        )

    def _topic(
        self,
        topic: TopicMetadata,
        settings: TopicSettings | None,
        extents: Mapping[Place, Extent],
        known: Mapping[tuple[str, int], _Known],
    ) -> TopicCopy | None:
        """None if the topic was deleted meanwhile."""
        topic_id = topic.topic_id.hex()
        partitions = []
        if settings is None or not any(place.topic_id == topic.topic_id for place in extents):
            return None
        for each in topic.partitions:
            place = Place(name_of(topic), topic.topic_id, each.partition)
            if place not in extents:
                continue
            before = known.get((topic_id, each.partition), _Known((), False))
            copier = PartitionCopier(
                self.cluster,
                self.folder,
                place,
                settings.is_compacted or before.must_be_compared,
                self._count,
                self.segment_bytes,
            )
            try:
                extent, segments = copier.copy(extents[place], before.segments)
            except UnknownTopicError:
                return None
            partitions.append(
                PartitionCopy(
                    each.partition, extent.log_start_offset, extent.end_offset, each.leader_epoch, segments
                )
            )
        return TopicCopy(
            name_of(topic),
            topic_id,
            topic.is_internal,
            max((len(each.replicas) for each in topic.partitions), default=1),
            settings.own,
            tuple(partitions),
            len(topic.partitions),
        )

    def _count(self, size: int) -> None:
        self._copied_bytes += size
        self.progress.copied(size)
