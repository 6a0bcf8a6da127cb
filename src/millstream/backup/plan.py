"""What a restore brings back: one backup as it is, or, for a moment between two backups, parts of both.

A backup holds exactly what was stored when it was made. For a later moment T, the next backup supplies the batches
after that whose own timestamps are not later than T: the log ends before the first batch whose newest record is later.
If brokers stamp the records (LogAppendTime), T is the moment of storing, to the millisecond; otherwise it is a time of
the producers' clocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.backup.manifest import BackupError, Manifest, PartitionCopy, SegmentCopy, Selection, TopicCopy


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    index: int
    log_start_offset: int
    leader_epoch: int
    segments: tuple[SegmentCopy, ...]
    whole_below: int
    """Up to this offset all batches are restored; from there on, those not later than the plan's moment."""


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    name: str
    topic_id: str
    replication_factor: int
    configs: dict[str, str]
    partition_count: int
    partitions: tuple[PlannedPartition, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    backup_ids: tuple[str, ...]
    until_ms: int | None
    broker_configs: dict[str, str]
    topics: tuple[PlannedTopic, ...]

    @property
    def size_bytes(self) -> int:
        """An upper bound; batches later than the plan's moment are read but not written."""
        return sum(
            segment.size_bytes
            for topic in self.topics
            for partition in topic.partitions
            for segment in partition.segments
        )


def plan_of(manifest: Manifest, selection: Selection) -> Plan:
    """All of one backup."""
    return _plan((manifest.backup_id,), None, manifest, _selected(manifest, selection), selection)


def plan_until(manifests: Sequence[Manifest], until_ms: int, selection: Selection) -> Plan:
    """Everything stored up to a moment, from backups in the order in which they were made."""
    if not manifests:
        raise BackupError("there is no backup yet")
    before = [each for each in manifests if each.cut_ms <= until_ms]
    after = [each for each in manifests if each.started_ms >= until_ms] or [manifests[-1]]
    if not before:
        later = after[0]
        return _plan(
            (later.backup_id,), until_ms, later, _selected(later, selection), selection, is_whole=False
        )
    floor = before[-1]
    # Only of the same cluster: a restored cluster has written other records at the same offsets.
    later = next((each for each in after if each.cluster_id == floor.cluster_id), floor)
    if later.cut_ms <= floor.cut_ms:
        return plan_of(floor, selection)
    topics = _merged(_selected(floor, selection), _selected(later, selection))
    return _plan((floor.backup_id, later.backup_id), until_ms, floor, topics, selection, merged_with=later)


def _selected(manifest: Manifest, selection: Selection) -> list[TopicCopy]:
    """The caller checks the whole selection: a topic may be in only one of two backups."""
    return [each for each in manifest.topics if not selection.topics or each.name in selection.topics]


def _merged(floor: Sequence[TopicCopy], later: Sequence[TopicCopy]) -> list[TopicCopy]:
    """Topics of the earlier backup, and those created since; of two with one name only the earlier."""
    names = {each.name for each in floor}
    return [*floor, *(each for each in later if each.name not in names)]


def _plan(
    backup_ids: tuple[str, ...],
    until_ms: int | None,
    base: Manifest,
    topics: Sequence[TopicCopy],
    selection: Selection,
    *,
    is_whole: bool = True,
    merged_with: Manifest | None = None,
) -> Plan:
    in_base = {each.topic_id for each in base.topics}
    later = {each.topic_id: each for each in merged_with.topics} if merged_with is not None else {}
    selection.check(
        (topic.name, each.index) for topic in (*topics, *later.values()) for each in topic.partitions
    )
    planned = []
    for topic in topics:
        newer = later.get(topic.topic_id)
        is_known = topic.topic_id in in_base and is_whole
        partitions = _partitions(topic, newer, selection, is_known=is_known)
        count = max(topic.partition_count, newer.partition_count if newer is not None else 0)
        planned.append(
            PlannedTopic(
                topic.name, topic.topic_id, topic.replication_factor, topic.configs, count, tuple(partitions)
            )
        )
    return Plan(backup_ids, until_ms, base.broker_configs, tuple(planned))


def _partitions(
    topic: TopicCopy, newer: TopicCopy | None, selection: Selection, *, is_known: bool
) -> list[PlannedPartition]:
    """`is_known`: the topic is in the earlier backup, which is restored whole."""
    found = []
    early = {each.index: each for each in topic.partitions}
    late = {each.index: each for each in newer.partitions} if newer is not None else {}
    for index in sorted({**early, **late}):
        if not selection.has(topic.name, index):
            continue
        base, following = early.get(index), late.get(index)
        if base is not None and following is not None and is_known:
            found.append(_joined(base, following))
        else:
            only = base or following
            assert only is not None
            whole = only.end_offset if is_known and base is not None else 0
            found.append(_planned(only, only.segments, whole))
    return found


def _joined(base: PartitionCopy, following: PartitionCopy) -> PlannedPartition:
    more = [each for each in following.segments if each.base_offset >= base.end_offset]
    if following.end_offset == base.end_offset:
        return _planned(base, base.segments, base.end_offset)
    if more and more[0].base_offset == base.end_offset:
        joined = _planned(base, (*base.segments, *more), base.end_offset)
        return _with_epoch(joined, following.leader_epoch)
    # The log was truncated or recreated since: the two parts do not belong together.
    return _planned(following, following.segments, 0)


def _planned(
    partition: PartitionCopy, segments: tuple[SegmentCopy, ...], whole_below: int
) -> PlannedPartition:
    return PlannedPartition(
        partition.index, partition.log_start_offset, partition.leader_epoch, segments, whole_below
    )


def _with_epoch(planned: PlannedPartition, epoch: int) -> PlannedPartition:
    return PlannedPartition(
        planned.index,
        planned.log_start_offset,
        max(planned.leader_epoch, epoch),
        planned.segments,
        planned.whole_below,
    )
