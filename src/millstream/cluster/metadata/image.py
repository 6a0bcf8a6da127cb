"""The cluster's metadata at one moment, as immutable values that readers may keep as long as they like."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from uuid import UUID

import msgspec
from msgspec.structs import replace

from millstream.cluster.metadata.records import (
    FOR_NODES,
    BrokerChanged,
    BrokerEpochsUsed,
    BrokerRegistered,
    BrokerUnregistered,
    ClusterCreated,
    ConfigChanged,
    ConfigResource,
    DirectoriesRetired,
    Endpoint,
    LastKnownReplica,
    MetadataRecord,
    PartitionChanged,
    PartitionCreated,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from millstream.runtime.invariant import InvariantViolation, invariant

# In place of a broker id: the partition has no leader.
NO_LEADER = -1

_NOTHING: Mapping[str, str] = MappingProxyType({})


class PartitionImage(msgspec.Struct, frozen=True):
    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER
    last_known_elr: tuple[LastKnownReplica, ...] = ()

    @property
    def counted_on(self) -> set[int]:
        """Replicas that have everything acknowledged, or had it before an unclean stop."""
        return {*self.isr, *self.elr, *(each.broker_id for each in self.last_known_elr)}


class TopicImage(msgspec.Struct, frozen=True):
    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str]


class BrokerImage(msgspec.Struct, frozen=True):
    broker_id: int
    epoch: int
    incarnation: UUID
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    is_fenced: bool = False
    is_shutting_down: bool = False
    directory: UUID | None = None
    min_insync: int = 1
    session_ms: int = 0

    @property
    def for_nodes(self) -> Endpoint:
        """The listener for other nodes; without a separate one, the clients' listener."""
        return next((each for each in self.endpoints if each.listener == FOR_NODES), self.endpoints[0])


class MetadataImage(msgspec.Struct, frozen=True):
    """Immutable: `apply` returns a new image that shares all unchanged parts."""

    cluster_id: str = ""
    brokers: Mapping[int, BrokerImage] = msgspec.field(default_factory=dict)
    topics: Mapping[str, TopicImage] = msgspec.field(default_factory=dict)
    topics_by_id: Mapping[UUID, TopicImage] = msgspec.field(default_factory=dict)
    # Topic names with '.' or '_', by the name that metrics use for them; see `metric_name`.
    names_by_metric_name: Mapping[str, str] = msgspec.field(default_factory=dict)
    # By broker id as text; the empty name holds the defaults of all brokers.
    broker_configs: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    group_configs: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    next_producer_id: int = 0
    partition_count: int = 0
    # By broker id: partitions that prefer it as their leader, and replicas in all.
    loads: Mapping[int, tuple[int, int]] = msgspec.field(default_factory=dict)
    last_broker_epoch: int = -1
    retired_directories: frozenset[UUID] = frozenset()

    def apply(self, records: Iterable[MetadataRecord]) -> "MetadataImage":
        """The image after `records`; each map is copied at most once, whatever their number."""
        draft = _Draft(self)
        for record in records:
            draft.apply(record)
        return draft.finish()

    @property
    def live_brokers(self) -> list[BrokerImage]:
        """Brokers that are not fenced, ordered by id."""
        return [broker for _, broker in sorted(self.brokers.items()) if not broker.is_fenced]

    def is_live(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.is_fenced

    def topic(self, name: str) -> TopicImage | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        return self.topics_by_id.get(topic_id)

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def broker_overrides(self, broker_id: int) -> dict[str, str]:
        """The dynamic configuration of one broker, laid over the defaults of all brokers."""
        return {**self.broker_configs.get("", _NOTHING), **self.broker_configs.get(str(broker_id), _NOTHING)}


def metric_name(topic: str) -> str:
    """The topic's name in metrics, with '_' for '.': two topics must not differ in these characters only."""
    return topic.replace(".", "_")


class _TopicDraft(msgspec.Struct):
    name: str
    topic_id: UUID
    partitions: list[PartitionImage]
    configs: dict[str, str]


class _Draft:
    """Builds an image: collects changes and rebuilds each map once, at the end."""

    __slots__ = (
        "_base",
        "_broker_configs",
        "_brokers",
        "_cluster_id",
        "_group_configs",
        "_ids",
        "_last_broker_epoch",
        "_next_producer_id",
        "_retired",
        "_touched",
    )

    def __init__(self, base: MetadataImage) -> None:
        self._base = base
        self._cluster_id = base.cluster_id
        self._next_producer_id = base.next_producer_id
        self._last_broker_epoch = base.last_broker_epoch
        self._retired = base.retired_directories
        self._brokers: dict[int, BrokerImage | None] = {}
        self._broker_configs: dict[str, dict[str, str]] = {}
        self._group_configs: dict[str, dict[str, str]] = {}
        self._touched: dict[UUID, _TopicDraft | None] = {}
        self._ids: dict[str, UUID] = {}

    def apply(self, record: MetadataRecord) -> None:
        match record:
            case PartitionCreated():
                self._create_partition(record)
            case TopicCreated():
                self._create_topic(record)
            case PartitionChanged():
                self._change_partition(record)
            case TopicDeleted():
                self._topic(record.topic_id)
                self._touched[record.topic_id] = None
            case ConfigChanged():
                _change(self._configs(record), record.key, record.value)
            case ProducerIdsAllocated():
                invariant(record.next_id >= self._next_producer_id, "producer ids never go back")
                self._next_producer_id = record.next_id
            case BrokerRegistered():
                self._brokers[record.broker_id] = BrokerImage(
                    record.broker_id,
                    record.epoch,
                    record.incarnation,
                    record.endpoints,
                    record.rack,
                    record.is_fenced,
                    record.is_shutting_down,
                    record.directory,
                    record.min_insync,
                    record.session_ms,
                )
                self._use_epochs(record.epoch)
            case BrokerChanged():
                self._brokers[record.broker_id] = replace(
                    self._broker(record), is_fenced=record.is_fenced, is_shutting_down=record.is_shutting_down
                )
            case BrokerUnregistered():
                broker = self._broker(record)
                self._use_epochs(broker.epoch)
                if broker.directory is not None:
                    self._retired |= {broker.directory}
                self._brokers[record.broker_id] = None
            case BrokerEpochsUsed():
                self._use_epochs(record.last)
            case DirectoriesRetired():
                self._retired |= set(record.directories)
            case ClusterCreated():
                self._cluster_id = record.cluster_id

    def _broker(self, record: BrokerChanged | BrokerUnregistered) -> BrokerImage:
        broker_id = record.broker_id
        broker = self._brokers[broker_id] if broker_id in self._brokers else self._base.brokers.get(broker_id)
        if broker is None or broker.epoch != record.epoch:
            raise InvariantViolation(f"change of another broker: {record}")
        return broker

    def _use_epochs(self, last: int) -> None:
        self._last_broker_epoch = max(self._last_broker_epoch, last)

    def _create_topic(self, record: TopicCreated) -> None:
        invariant(self._touched.get(record.topic_id) is None, f"topic created twice: {record}")
        self._touched[record.topic_id] = _TopicDraft(record.name, record.topic_id, [], {})
        self._ids[record.name] = record.topic_id

    def _create_partition(self, record: PartitionCreated) -> None:
        partitions = self._topic(record.topic_id).partitions
        # Not `invariant`: formatting its message for each of thousands of records takes longer than applying them.
        if record.index != len(partitions):
            raise InvariantViolation(f"partition out of order: {record}")
        partitions.append(_partition(record))

    def _change_partition(self, record: PartitionChanged) -> None:
        partitions = self._topic(record.topic_id).partitions
        if record.index >= len(partitions):
            raise InvariantViolation(f"change of unknown partition {record}")
        partitions[record.index] = _partition(record)

    def _topic(self, topic_id: UUID) -> _TopicDraft:
        draft = self._touched.get(topic_id)
        if draft is not None:
            return draft
        topic = None if topic_id in self._touched else self._base.topics_by_id.get(topic_id)
        if topic is None:
            raise InvariantViolation(f"metadata record of unknown topic {topic_id}")
        draft = _TopicDraft(topic.name, topic_id, list(topic.partitions), dict(topic.configs))
        self._touched[topic_id] = draft
        return draft

    def _configs(self, record: ConfigChanged) -> dict[str, str]:
        if record.resource is ConfigResource.TOPIC:
            topic_id = self._ids.get(record.name)
            if topic_id is None:
                invariant(record.name in self._base.topics, f"config of unknown topic {record.name}")
                topic_id = self._base.topics[record.name].topic_id
            return self._topic(topic_id).configs
        if record.resource is ConfigResource.GROUP:
            return _own(self._group_configs, self._base.group_configs, record.name)
        return _own(self._broker_configs, self._base.broker_configs, record.name)

    def finish(self) -> MetadataImage:
        base = self._base
        topics, by_id, names, partition_count = self._finish_topics()
        loads = self._finish_loads(by_id)
        return MetadataImage(
            cluster_id=self._cluster_id,
            brokers=self._finish_brokers(),
            topics=topics,
            topics_by_id=by_id,
            names_by_metric_name=names,
            broker_configs=_merged(base.broker_configs, self._broker_configs),
            group_configs=_merged(base.group_configs, self._group_configs),
            next_producer_id=self._next_producer_id,
            partition_count=partition_count,
            loads=loads,
            last_broker_epoch=self._last_broker_epoch,
            retired_directories=self._retired,
        )

    def _finish_loads(self, by_id: Mapping[UUID, TopicImage]) -> Mapping[int, tuple[int, int]]:
        leaders: dict[int, int] = {}
        replicas: dict[int, int] = {}
        for topic_id in self._touched:
            old, new = self._base.topics_by_id.get(topic_id), by_id.get(topic_id)
            before = () if old is None else tuple([each.replicas for each in old.partitions])
            after = () if new is None else tuple([each.replicas for each in new.partitions])
            if before == after:
                continue
            for step, placed in ((-1, before), (1, after)):
                for brokers in placed:
                    leaders[brokers[0]] = leaders.get(brokers[0], 0) + step
                    for broker in brokers:
                        replicas[broker] = replicas.get(broker, 0) + step
        if not replicas:
            return self._base.loads
        loads = dict(self._base.loads)
        for broker, change in replicas.items():
            led, kept = loads.get(broker, (0, 0))
            loads[broker] = led + leaders.get(broker, 0), kept + change
        return {broker: load for broker, load in loads.items() if load[1]}

    def _finish_brokers(self) -> Mapping[int, BrokerImage]:
        if not self._brokers:
            return self._base.brokers
        merged = {**self._base.brokers, **self._brokers}
        return {broker_id: broker for broker_id, broker in merged.items() if broker is not None}

    def _finish_topics(
        self,
    ) -> tuple[Mapping[str, TopicImage], Mapping[UUID, TopicImage], Mapping[str, str], int]:
        base = self._base
        if not self._touched:
            return base.topics, base.topics_by_id, base.names_by_metric_name, base.partition_count
        topics, by_id, names = dict(base.topics), dict(base.topics_by_id), dict(base.names_by_metric_name)
        count = base.partition_count
        # Removals first: a name may have been deleted and created again under another id.
        for topic_id in self._touched:
            old = by_id.pop(topic_id, None)
            if old is not None:
                count -= len(old.partitions)
                del topics[old.name]
                names.pop(metric_name(old.name), None)
        for draft in self._touched.values():
            if draft is not None:
                topic = TopicImage(
                    draft.name, draft.topic_id, tuple(draft.partitions), draft.configs or _NOTHING
                )
                topics[topic.name] = by_id[topic.topic_id] = topic
                count += len(topic.partitions)
                if "." in topic.name or "_" in topic.name:
                    names[metric_name(topic.name)] = topic.name
        return topics, by_id, names, count


def _partition(record: PartitionCreated | PartitionChanged) -> PartitionImage:
    # Nearly always both are equal; sharing one tuple halves the number of small objects in the image.
    isr = record.replicas if record.isr == record.replicas else record.isr
    return PartitionImage(
        record.index,
        record.replicas,
        isr,
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        record.elr,
        record.adding,
        record.removing,
        record.last_known_leader,
        record.last_known_elr,
    )


def _own(
    changed: dict[str, dict[str, str]], base: Mapping[str, Mapping[str, str]], name: str
) -> dict[str, str]:
    configs = changed.get(name)
    if configs is None:
        configs = changed[name] = dict(base.get(name, {}))
    return configs


def _merged(
    base: Mapping[str, Mapping[str, str]], changed: Mapping[str, Mapping[str, str]]
) -> Mapping[str, Mapping[str, str]]:
    if not changed:
        return base
    return {name: configs for name, configs in {**base, **changed}.items() if configs}


def _change(configs: dict[str, str], key: str, value: str | None) -> None:
    if value is None:
        configs.pop(key, None)
    else:
        configs[key] = value
