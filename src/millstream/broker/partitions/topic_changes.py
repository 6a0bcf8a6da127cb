"""Follows the metadata: opens logs for new partitions, removes those of deleted topics, applies changed settings."""

from collections.abc import Iterator, Mapping
from uuid import UUID

from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.parts import PartitionParts
from millstream.broker.replicas.replication import Replication
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.image import MetadataImage, PartitionImage, TopicImage
from millstream.cluster.metadata.records import (
    BrokerChanged,
    BrokerRegistered,
    ConfigChanged,
    ConfigResource,
    MetadataRecord,
    PartitionChanged,
    PartitionCreated,
    TopicDeleted,
)
from millstream.cluster.metadata.service import MetadataService
from millstream.config.definitions import resolve_topic_config
from millstream.config.topic import TopicConfig
from millstream.observability.broker_metrics import MessageCounters
from millstream.observability.logs import get_logger
from millstream.runtime.sometimes import sometimes
from millstream.storage.store import STRAY, PartitionSpec

log = get_logger("millstream.topics")


class TopicChanges:
    def __init__(
        self,
        defaults: Defaults,
        metadata: MetadataService,
        logs: PartitionParts,
        replication: Replication,
        messages: MessageCounters,
    ) -> None:
        self._node_id = defaults.broker_id
        self._defaults = defaults
        self._metadata = metadata
        self._store = logs.store
        self._partitions = logs.partitions
        self._flusher = logs.flusher
        self._upkeep = logs.upkeep
        self._retired = logs.retired
        self._replication = replication
        self._messages = messages
        self._resolved: tuple[TopicImage, TopicConfig] | None = None

    def broker_configs(self) -> dict[str, str]:
        """The broker's settings that topics inherit: from its file, overlaid by those changed while it runs."""
        return self._defaults.broker_configs(self._metadata.image)

    def is_elsewhere(self, topic: str | bytes, index: int) -> bool:
        image = self._metadata.image
        found = image.topic_by_id(UUID(bytes=topic)) if isinstance(topic, bytes) else image.topic(topic)
        return found is not None and 0 <= index < len(found.partitions)

    def own_partitions(self, image: MetadataImage) -> Iterator[tuple[PartitionImage, PartitionSpec]]:
        """The partitions that this node keeps."""
        broker_configs = self.broker_configs()
        for topic in image.topics.values():
            config = resolve_topic_config(topic.configs, broker_configs)
            for partition in topic.partitions:
                if self._node_id in partition.replicas:
                    yield (
                        partition,
                        PartitionSpec(
                            topic.name,
                            partition.index,
                            topic.topic_id.bytes,
                            config,
                            partition.leader_epoch,
                            0 if len(partition.replicas) > 1 else None,
                        ),
                    )

    def apply(self, old: MetadataImage, new: MetadataImage, records: tuple[MetadataRecord, ...]) -> None:
        broker_configs = self.broker_configs()
        self._resolved = None
        reconfigured = _reconfigured(new, records)
        for record in records:
            match record:
                case TopicDeleted(topic_id):
                    topic = old.topic_by_id(topic_id)
                    if topic is not None:
                        self._remove(topic.name)
                case PartitionCreated(topic_id, index):
                    topic = new.topic_by_id(topic_id)
                    if topic is not None:
                        self._add(topic, topic.partitions[index], broker_configs)
                case PartitionChanged(topic_id, index):
                    topic = new.topic_by_id(topic_id)
                    if topic is not None:
                        if topic.name in reconfigured:
                            # The settings first: the new in-sync set is checked against the new minimum.
                            self._reconfigure(topic, index, broker_configs)
                        self._change(topic, topic.partitions[index], broker_configs)
                case BrokerRegistered(broker_id) | BrokerChanged(broker_id):
                    self._replication.broker_changed(broker_id)
        for topic in reconfigured.values():
            config = resolve_topic_config(topic.configs, broker_configs)
            for partition in self._partitions.of_topic(topic.name):
                partition.update_config(config)
                self._replication.config_changed(partition)

    def _reconfigure(self, topic: TopicImage, index: int, broker_configs: Mapping[str, str]) -> None:
        partition = self._partitions.get(topic.name, index)
        if partition is not None:
            partition.update_config(resolve_topic_config(topic.configs, broker_configs))

    def _add(self, topic: TopicImage, image: PartitionImage, broker_configs: Mapping[str, str]) -> None:
        is_here = self._partitions.get(topic.name, image.index) is not None
        if is_here or self._node_id not in image.replicas:
            return
        if self._resolved is None or self._resolved[0] is not topic:
            # Once for all partitions of a new topic.
            self._resolved = topic, resolve_topic_config(topic.configs, broker_configs)
        spec = PartitionSpec(topic.name, image.index, topic.topic_id.bytes, self._resolved[1])
        self._store.create(spec)
        self.serve(image, spec)

    def serve(self, image: PartitionImage, spec: PartitionSpec, high_watermark: int | None = None) -> None:
        """Take the role that this node has in a partition whose log is open."""
        if (
            self._is_kept_elsewhere(spec, image)
            and self._store.logs[spec.topic, spec.partition].offline is not None
        ):
            log.error(
                "replica cannot be opened",
                effect="copied again from other replicas",
                topic=spec.topic,
                partition=spec.partition,
            )
            self._store.remove(spec.topic, spec.partition, STRAY)
            self._store.create(spec)
        partition = Partition(
            spec.topic,
            spec.partition,
            spec.topic_id,
            self._store.logs[spec.topic, spec.partition],
            image.leader_epoch,
            self._flusher,
            is_leader=False,
            high_watermark=high_watermark,
        )
        self._partitions.add(partition)
        self._replication.update(partition, image)

    def _is_kept_elsewhere(self, spec: PartitionSpec, image: PartitionImage) -> bool:
        """Whether every record of the partition is on another node's disk too."""
        p = self._metadata.image.partition(spec.topic, spec.partition) or image
        return len(p.replicas) > 1 and self._node_id not in (p.leader, *p.counted_on)

    def _change(self, topic: TopicImage, image: PartitionImage, broker_configs: Mapping[str, str]) -> None:
        partition = self._partitions.get(topic.name, image.index)
        if self._node_id not in image.replicas:
            if partition is not None:
                self._leave(partition, image)
        elif partition is None:
            self._add(topic, image, broker_configs)
        else:
            self._replication.update(partition, image)

    def _leave(self, partition: Partition, image: PartitionImage) -> None:
        """Only other nodes keep the partition now: remove it here."""
        sometimes("a replica moved away")
        self._replication.update(partition, image)
        self._replication.remove(partition)
        self._partitions.remove(partition)
        self._discard(partition)
        self._store.forget_topic_directory(partition.topic)

    def _discard(self, partition: Partition) -> None:
        delay_ms = partition.log.config.file_delete_delay_ms
        path = self._store.remove(partition.topic, partition.index)
        if partition.log.offline is not None:
            partition.fail(partition.log.offline)
        if path is not None:
            self._upkeep.remove_later(path, delay_ms)
            self._upkeep.log_removed()

    def _remove(self, topic: str) -> None:
        """All that others could see of it goes in this turn, what is left of it in slices: there may be very many."""
        partitions = self._partitions.remove_topic(topic)
        if not partitions:
            # Others keep it. A directory that is here all the same is an earlier one's, and may not be empty.
            self._store.forget_topic_directory(topic)
            self._messages.forget(topic)
            return
        for partition in partitions:
            self._replication.remove(partition)
        path = self._store.remove_topic(topic, [partition.index for partition in partitions])
        self._retired.let_go(partitions)
        if path is not None:
            self._upkeep.remove_later(path, partitions[0].log.config.file_delete_delay_ms)
            self._upkeep.log_removed()
        self._messages.forget(topic)


def _reconfigured(image: MetadataImage, records: tuple[MetadataRecord, ...]) -> dict[str, TopicImage]:
    """Topics whose settings these records change."""
    found: dict[str, TopicImage] = {}
    for record in records:
        match record:
            case ConfigChanged(ConfigResource.TOPIC, name):
                topic = image.topic(name)
                if topic is not None:
                    found[name] = topic
            case ConfigChanged(ConfigResource.BROKER):
                found.update(image.topics)
    return found
