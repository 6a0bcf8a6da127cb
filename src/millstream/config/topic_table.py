"""Kafka's topic settings that this broker honours, each with the broker settings that give its default."""

from millstream.config.kinds import ConfigDefinition, ConfigType, Synonym, to_text
from millstream.config.topic import TopicConfig

_DEFAULTS = TopicConfig()
_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000


def _define(
    name: str,
    kind: ConfigType,
    documentation: str,
    *broker_names: str | Synonym,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    item_pattern: str = "",
    item_words: str = "",
    refused: dict[str, str] | None = None,
) -> ConfigDefinition:
    return ConfigDefinition(
        name,
        kind,
        to_text(getattr(_DEFAULTS, name.replace(".", "_"))),
        documentation,
        minimum=minimum,
        maximum=maximum,
        choices=choices,
        synonyms=tuple(s if isinstance(s, Synonym) else Synonym(s) for s in broker_names),
        item_pattern=item_pattern,
        item_words=item_words,
        refused=refused or {},
    )


def _throttled(name: str, documentation: str) -> ConfigDefinition:
    return _define(
        name,
        ConfigType.LIST,
        documentation,
        item_pattern=r"\*|[0-9]+:[0-9]+",
        item_words="* for all, or partition:broker, several separated by commas",
    )


_DEFINITIONS = (
    _define(
        "cleanup.policy", ConfigType.LIST,
        "Whether old segments are deleted by retention, or compacted to each key's latest value, or both, or neither.",
        "log.cleanup.policy", choices=("delete", "compact"), item_pattern="delete|compact",
    ),
    _define(
        "client.routing", ConfigType.STRING,
        "How clients reach this topic's leaders: direct, they are told who leads and go there; proxy, the node they ask"
        " names itself, and forwards. The default is each node's own setting.",
        "client.routing", choices=("direct", "proxy"),
    ),
    _define(
        "compression.type", ConfigType.STRING,
        "The codec batches are stored in; producer keeps every batch as it was sent.",
        "compression.type", choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    ),
    _define(
        "compression.gzip.level", ConfigType.INT,
        "The level used when this topic's batches are compressed again with gzip; -1 is zlib's own default.",
        "compression.gzip.level", minimum=-1, maximum=9,
    ),
    _define(
        "compression.lz4.level", ConfigType.INT,
        "The level used when this topic's batches are compressed again with lz4.",
        "compression.lz4.level", minimum=1, maximum=17,
    ),
    _define(
        "compression.zstd.level", ConfigType.INT,
        "The level used when this topic's batches are compressed again with zstd.",
        "compression.zstd.level", minimum=-131072, maximum=22,
    ),
    _define(
        "delete.retention.ms", ConfigType.LONG,
        "How long a compacted topic keeps tombstones, so that a reader from the start sees every deletion.",
        "log.cleaner.delete.retention.ms", minimum=0,
    ),
    _define(
        "errors.deadletterqueue.group.enable", ConfigType.BOOLEAN,
        "Whether share groups may write their dead letters to this topic.",
    ),
    _define(
        "file.delete.delay.ms", ConfigType.LONG,
        "How long the files of a deleted segment stay on disk for readers that still use them.",
        "log.segment.delete.delay.ms", minimum=0,
    ),
    _define(
        "flush.messages", ConfigType.LONG,
        "Flush the log after this many messages. 1 makes every acknowledgement wait for the disk, as when "
        "neither flush.messages nor flush.ms is set; more lets acknowledgements go before it.",
        "log.flush.interval.messages", minimum=1,
    ),
    _define(
        "flush.ms", ConfigType.LONG,
        "Flush the log when its oldest unflushed message is this old. Setting it lets acknowledgements go "
        "before the disk has the data, unless it is 0 or flush.messages is 1.",
        "log.flush.interval.ms", minimum=0,
    ),
    _throttled(
        "follower.replication.throttled.replicas",
        "Replicas whose broker copies them no faster than its follower.replication.throttled.rate.",
    ),
    _define(
        "index.interval.bytes", ConfigType.INT,
        "An entry is added to the offset index about every this many bytes of log, but at least every 64 KiB.",
        "log.index.interval.bytes", minimum=0,
    ),
    _throttled(
        "leader.replication.throttled.replicas",
        "Replicas that are copied from this broker no faster than its leader.replication.throttled.rate.",
    ),
    _define(
        "max.compaction.lag.ms", ConfigType.LONG,
        "The longest a message may stay uncompacted in a compacted topic.",
        "log.cleaner.max.compaction.lag.ms", minimum=1,
    ),
    _define(
        "max.message.bytes", ConfigType.INT,
        "The largest record batch accepted, as it arrives (after the producer's compression).",
        "message.max.bytes", minimum=0,
    ),
    _define(
        "message.timestamp.after.max.ms", ConfigType.LONG,
        "How far a message's CreateTime may lie ahead of the broker's clock.",
        "log.message.timestamp.after.max.ms", minimum=0,
    ),
    _define(
        "message.timestamp.before.max.ms", ConfigType.LONG,
        "How far a message's CreateTime may lie behind the broker's clock.",
        "log.message.timestamp.before.max.ms", minimum=0,
    ),
    _define(
        "message.timestamp.type", ConfigType.STRING,
        "Whether a message carries the time its producer gave it or the time the broker appended it.",
        "log.message.timestamp.type", choices=("CreateTime", "LogAppendTime"),
    ),
    _define(
        "min.cleanable.dirty.ratio", ConfigType.DOUBLE,
        "The share of uncompacted bytes from which a compacted log is cleaned.",
        "log.cleaner.min.cleanable.ratio", minimum=0, maximum=1,
    ),
    _define(
        "min.compaction.lag.ms", ConfigType.LONG,
        "The shortest time a message stays uncompacted in a compacted topic.",
        "log.cleaner.min.compaction.lag.ms", minimum=0,
    ),
    _define(
        "min.insync.replicas", ConfigType.INT,
        "In-sync replicas a producer with acks=all needs; with fewer it gets NOT_ENOUGH_REPLICAS.",
        "min.insync.replicas", minimum=1,
    ),
    _define(
        "placement", ConfigType.STRING,
        "How new partitions are placed on brokers: balanced gives them to those that have least; ring moves few when"
        " brokers come and go (consistent hashing with bounded loads); modulo goes around them in turn.",
        "log.placement", choices=("balanced", "ring", "modulo"),
    ),
    _define(
        "preallocate", ConfigType.BOOLEAN,
        "Whether a new segment's disk blocks are reserved when it is created.",
        "log.preallocate",
    ),
    _define(
        "queue.delete.settled", ConfigType.BOOLEAN,
        "Whether records are deleted once every share group that uses the topic has settled them.",
    ),
    _define(
        "queue.groups", ConfigType.LIST,
        "The share groups that queue.delete.settled and queue.max.depth go by: all that have used the topic. Deleting a"
        " group, or its offsets, takes it out.",
        item_pattern=r"[^,]+", item_words="group ids separated by commas",
    ),
    _define(
        "queue.headers.enable", ConfigType.BOOLEAN,
        "Whether share groups obey the headers millstream.priority, millstream.delay.ms, millstream.deliver.at.ms and"
        " millstream.ttl.ms of single records.",
    ),
    _define(
        "queue.max.depth", ConfigType.LONG,
        "The most records of a partition that a share group may have left to settle; -1 sets no limit.", minimum=-1,
    ),
    _define(
        "queue.order", ConfigType.STRING,
        "What a share group delivers at the same time: none, anything; key, one record of a key; strict, one record of"
        " a partition.", choices=("none", "key", "strict"),
    ),
    _define(
        "queue.overflow", ConfigType.STRING,
        "What happens at queue.max.depth: refuse new records with POLICY_VIOLATION, or drop the oldest.",
        choices=("refuse", "drop-oldest"),
    ),
    _define(
        "queue.ttl.ms", ConfigType.LONG,
        "Share groups give up records that are older than this; a batch is as old as its newest record. -1: never.",
        minimum=-1,
    ),
    _define(
        "replication.mode", ConfigType.STRING,
        "What acks=all waits for: async for the leader's own log only; isr, as Kafka, for every in-sync replica, of "
        "which there must be min.insync.replicas; sync for every replica, refusing writes while one is not in sync.",
        "log.replication.mode", choices=("async", "sync", "isr"),
        refused={
            "quorum": "acknowledgement by a majority does not exist here: use isr, with which acks=all waits for every"
            " replica that is in sync, and min.insync.replicas",
        },
    ),
    _define(
        "retention.bytes", ConfigType.LONG,
        "The oldest segments of a partition are deleted while it is larger than this; -1 sets no limit.",
        "log.retention.bytes", minimum=-1,
    ),
    _define(
        "retention.ms", ConfigType.LONG,
        "Segments whose newest message is older than this are deleted; -1 sets no limit.",
        "log.retention.ms",
        Synonym("log.retention.minutes", _MINUTE_MS),
        Synonym("log.retention.hours", _HOUR_MS),
        minimum=-1,
    ),
    _define(
        "segment.bytes", ConfigType.INT,
        "A new segment is started when the current one would grow beyond this.",
        "log.segment.bytes", minimum=14,
    ),
    _define(
        "segment.index.bytes", ConfigType.INT,
        "The largest size of a segment's index; a new segment is started when it is full.",
        "log.index.size.max.bytes", minimum=12,
    ),
    _define(
        "segment.jitter.ms", ConfigType.LONG,
        "Up to this much, at random, is taken off segment.ms so that partitions do not all roll at once.",
        "log.roll.jitter.ms", Synonym("log.roll.jitter.hours", _HOUR_MS), minimum=0,
    ),
    _define(
        "segment.ms", ConfigType.LONG,
        "A new segment is started when the current one is this old.",
        "log.roll.ms", Synonym("log.roll.hours", _HOUR_MS), minimum=1,
    ),
    _define(
        "unclean.leader.election.enable", ConfigType.BOOLEAN,
        "Whether a replica that is not in sync may become leader when no other is left, losing messages.",
        "unclean.leader.election.enable",
    ),
)  # fmt: skip

TOPIC_CONFIGS = {definition.name: definition for definition in _DEFINITIONS}

UNSUPPORTED_TOPIC_CONFIGS = {
    "local.retention.bytes": "there is no tiered storage; use retention.bytes",
    "local.retention.ms": "there is no tiered storage; use retention.ms",
    "message.downconversion.enable": "old message formats are never served; leave it out",
    "message.format.version": "messages are always stored in format v2; leave it out",
    "message.timestamp.difference.max.ms": "use message.timestamp.before.max.ms and .after.max.ms",
    "remote.log.copy.disable": "there is no tiered storage; leave it out",
    "remote.log.delete.on.disable": "there is no tiered storage; leave it out",
    "remote.storage.enable": "there is no tiered storage; leave it out",
}

# Kafka's defaults of settings that only Kafka has: setting them to these changes nothing.
UNSUPPORTED_TOPIC_DEFAULTS = {
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "message.downconversion.enable": "true",
    "message.timestamp.difference.max.ms": str(2**63 - 1),
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
}
