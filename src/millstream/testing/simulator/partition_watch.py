"""The rules of replicated partitions, checked at each change of leader, high watermark or log end."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from millstream.broker.partitions.partition import Partition
from millstream.cluster.metadata.image import MetadataImage, PartitionImage
from millstream.cluster.replication import LeaderState, PendingChange
from millstream.config.topic import TopicConfig
from millstream.protocol.errors import KafkaError
from millstream.protocol.record_batch import CorruptBatch
from millstream.storage.log import PartitionLog
from millstream.storage.truncation import Truncation
from millstream.testing.simulator.cluster import SimulatedCluster
from millstream.testing.simulator.loop import CURRENT, SimulatedLoop
from millstream.testing.simulator.quorum_watch import QuorumWatch

Place = tuple[bytes, int]


class PartitionWatch:
    """One leader an epoch; no leader without all committed records; nothing committed that is not on the disks of all
    in-sync replicas; a high watermark never goes back, and no replica truncates below it.
    """

    def __init__(self, loop: SimulatedLoop, cluster: SimulatedCluster, quorum: QuorumWatch) -> None:
        self.elections = 0
        self.truncations = 0
        self._violated = loop.violated
        self._cluster = cluster
        self._quorum = quorum
        quorum.image_came = self._image_came
        self._leaders: dict[tuple[bytes, int, int], str] = {}
        self._committed: dict[Place, int] = {}
        """The highest high watermark of any leader."""
        self._committed_in: dict[Place, dict[int, int]] = {}
        """The same by leader epoch."""
        self._held = 0
        """How many offsets the log holds that is being truncated; a log without any loses nothing."""
        self._is_damaged = False
        """Whether the log cannot be read at its new end."""
        self._reported_early: dict[Partition, int] = {}
        """Where a relaxed log ended when its topic became durable: what a replica has reported before it was flushed.

        Until the next flush the log's directory still says so, and after a crash the replica is in doubt.
        """

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Check every partition within the `with` block."""
        originals = {
            name: getattr(Partition, name) for name in ("_advance", "lead", "truncated", "update_config")
        }
        cut = PartitionLog.truncate
        propose = LeaderState.propose

        def advanced(partition: Partition, high_watermark: int, size: int) -> None:
            before = partition.high_watermark
            originals["_advance"](partition, high_watermark, size)
            self._advanced(partition, before, high_watermark)

        def led(partition: Partition, leader_epoch: int, replication: Any) -> None:
            self._led(partition, leader_epoch)
            originals["lead"](partition, leader_epoch, replication)
            self._begins(partition)

        def cuts(log: PartitionLog, truncation: Truncation) -> None:
            self._held = log.log_end_offset - log.log_start_offset
            self._is_damaged = _is_damaged(log, truncation.end_offset)
            cut(log, truncation)

        def truncated(partition: Partition) -> None:
            self._truncated(partition)
            originals["truncated"](partition)

        def updated(partition: Partition, config: TopicConfig) -> None:
            if not partition.log.is_flushed_first:
                self._reported_early[partition] = partition.log.log_end_offset
            originals["update_config"](partition, config)

        def proposes(
            state: LeaderState, own_epoch: int, *, joining: Iterable[int] = (), leaving: Iterable[int] = ()
        ) -> PendingChange:
            joining = tuple(joining)
            self._joins(state, joining)
            return propose(state, own_epoch, joining=joining, leaving=leaving)

        replacements: dict[str, Callable[..., None]] = {
            "_advance": advanced,
            "lead": led,
            "truncated": truncated,
            "update_config": updated,
        }
        for name, replacement in replacements.items():
            setattr(Partition, name, replacement)
        setattr(PartitionLog, "truncate", cuts)  # noqa: B010 - a method in place of a method
        setattr(LeaderState, "propose", proposes)  # noqa: B010
        try:
            yield
        finally:
            setattr(LeaderState, "propose", propose)  # noqa: B010
            setattr(PartitionLog, "truncate", cut)  # noqa: B010
            for name, original in originals.items():
                setattr(Partition, name, original)

    def _joins(self, state: LeaderState, joining: Iterable[int]) -> None:
        for each in joining:
            follower = state.follower(each)
            if follower is None or follower.is_damaged:
                self._violated(
                    f"node {each} joins the in-sync set, though it reported that it waits for a repair"
                )

    def _advanced(self, partition: Partition, before: int, after: int) -> None:
        if after < before:
            self._violated(f"{_name(partition)}: the high watermark goes back from {before} to {after}")
        place = partition.topic_id, partition.index
        if not partition.is_leader:
            if after > self._committed.get(place, 0):
                self._violated(
                    f"{_name(partition)}: {_here()} counts all below {after} as committed; no leader has committed it"
                )
            return
        self._note_committed(partition)
        state = partition.replication
        if state is not None:
            needed = max(state.min_isr, self._minimum(partition))
            if len(state.isr) < min(needed, len(state.replicas)):
                self._violated(
                    f"{_name(partition)}: the high watermark moves to {after} with {list(state.isr)} in sync, where"
                    f" {needed} are needed"
                )
        known = self._known(partition)
        if known is None or known.leader_epoch != partition.leader_epoch:
            return
        for broker_id in known.isr:
            end = self._durable_end(broker_id, partition.topic, partition.index, partition.topic_id)
            if end is not None and end < after:
                self._violated(
                    f"{_name(partition)}: the high watermark is {after}, and on the disk of node {broker_id}, which is"
                    f" in sync, the log ends at {end}"
                )

    def _led(self, partition: Partition, leader_epoch: int) -> None:
        here = _here()
        known = self._leaders.setdefault((partition.topic_id, partition.index, leader_epoch), here)
        if known != here:
            self._violated(f"{_name(partition)}: {known} and {here} both lead in epoch {leader_epoch}")
        if partition.is_leader and partition.leader_epoch == leader_epoch:
            return
        self.elections += 1
        # Not records of later epochs: a late leader may begin in an epoch that is already over.
        epochs = self._committed_in.get((partition.topic_id, partition.index), {})
        committed = max((upper for epoch, upper in epochs.items() if epoch <= leader_epoch), default=0)
        if partition.log.offline is None and partition.log.log_end_offset < committed:
            self._violated(
                f"{_name(partition)}: {here} leads in epoch {leader_epoch} with a log that ends at"
                f" {partition.log.log_end_offset}; up to {committed} was committed"
            )

    def _begins(self, partition: Partition) -> None:
        """A new leader may at once count as committed what it has, if it alone is in sync."""
        place = partition.topic_id, partition.index
        known = self._known(partition)
        if (
            partition.high_watermark <= self._committed.get(place, 0)
            or known is None
            or known.leader_epoch != partition.leader_epoch
        ):
            return
        if known.counted_on != {known.leader}:
            self._violated(
                f"{_name(partition)}: {_here()} begins to lead in epoch {partition.leader_epoch} and counts"
                f" everything below {partition.high_watermark} as committed; no leader has committed it"
            )
        self._note_committed(partition)

    def _note_committed(self, partition: Partition) -> None:
        place, upper = (partition.topic_id, partition.index), partition.high_watermark
        self._committed[place] = max(upper, self._committed.get(place, 0))
        epochs = self._committed_in.setdefault(place, {})
        epochs[partition.leader_epoch] = max(upper, epochs.get(partition.leader_epoch, 0))

    def _truncated(self, partition: Partition) -> None:
        self.truncations += 1
        end = partition.log.log_end_offset
        if end < partition.high_watermark and self._held and not self._may_cut_more(partition):
            self._violated(
                f"{_name(partition)}: {_here()} truncates its log to {end}, below its high watermark"
                f" {partition.high_watermark}"
            )

    def _may_cut_more(self, partition: Partition) -> bool:
        """Damage hides the log's new end, and other replicas are known to have the records in between."""
        known = self._known(partition)
        return (
            self._is_damaged
            and known is not None
            and _here() not in {f"n{each}" for each in known.counted_on}
        )

    def committed_after(self, partition: Partition) -> int | None:
        """Up to which offset leaders of later epochs have committed; None without any."""
        epochs = self._committed_in.get((partition.topic_id, partition.index), {})
        return max((upper for epoch, upper in epochs.items() if epoch > partition.leader_epoch), default=None)

    def _minimum(self, partition: Partition) -> int:
        """The metadata of this node, by which eligible leaders are chosen."""
        for node in self._cluster.nodes.values():
            if node.name == _here() and node.broker is not None:
                topic = node.broker.metadata.image.topics.get(partition.topic)
                if topic is not None and topic.topic_id.bytes == partition.topic_id:
                    return int(topic.configs.get("min.insync.replicas", 1))
        return 1

    def _known(self, partition: Partition) -> PartitionImage | None:
        """The partition in the newest metadata of any node."""
        # The leader's own may be newer: it acts on a change while that is being applied.
        brokers = [node.broker for node in self._cluster.nodes.values() if node.name == _here()]
        images = [self._quorum.newest, *(each.metadata.image for each in brokers if each is not None)]
        known: PartitionImage | None = None
        for image in images:
            topic = image.topics.get(partition.topic)
            if topic is None or topic.topic_id.bytes != partition.topic_id:
                continue
            for each in topic.partitions[partition.index : partition.index + 1]:
                if known is None or each.partition_epoch > known.partition_epoch:
                    known = each
        return known

    def _image_came(self, before: MetadataImage, after: MetadataImage) -> None:
        """Every replica that joins the in-sync set has all committed records."""
        for name, topic in after.topics.items():
            old = before.topics.get(name)
            if old is topic or old is None or old.topic_id != topic.topic_id:
                continue
            for index, (earlier, later) in enumerate(zip(old.partitions, topic.partitions, strict=False)):
                committed = self._committed.get((topic.topic_id.bytes, index), 0)
                for broker_id in later.isr:
                    if broker_id in earlier.isr:
                        continue
                    end = self._durable_end(broker_id, name, index, topic.topic_id.bytes)
                    if end is not None and end < committed:
                        self._violated(
                            f"{name}-{index}: node {broker_id} joins the in-sync set with a log that ends at {end};"
                            f" up to {committed} is committed"
                        )

    def _durable_end(self, broker_id: int, topic: str, index: int, topic_id: bytes) -> int | None:
        """The log end on that node's disk; None if the node is away, or has another topic of that name."""
        node = self._cluster.nodes.get(broker_id)
        broker = None if node is None else node.broker
        copy = None if broker is None else broker.partitions.get(topic, index)
        if copy is None or copy.topic_id != topic_id or copy.log.offline is not None:
            return None
        if not copy.log.config.durable:
            return copy.log.log_end_offset
        reported = self._reported_early.get(copy, 0)
        return max(copy.log.flushed_offset, min(reported, copy.log.log_end_offset))


def _name(partition: Partition) -> str:
    return f"{partition.topic}-{partition.index}"


def _is_damaged(log: PartitionLog, offset: int) -> bool:
    try:
        log.read(offset, 1, log.log_end_offset)
    except CorruptBatch:
        return True
    except KafkaError:
        return False
    return False


def _here() -> str:
    process = CURRENT.get()
    return "-" if process is None else process.machine
