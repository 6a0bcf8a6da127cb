"""Kafka's broker settings that this broker honours: broker settings proper, and defaults of topic settings."""

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from millstream.config.group_table import GROUP_CONFIGS
from millstream.config.kinds import ConfigDefinition, ConfigType
from millstream.config.share_table import SHARE_BROKER_CONFIGS
from millstream.config.topic import MAX_LONG
from millstream.config.topic_table import TOPIC_CONFIGS

_own = partial(ConfigDefinition, dynamic=False)


def _rate(name: str, documentation: str) -> ConfigDefinition:
    """A limit that can be set and removed while brokers run."""
    return ConfigDefinition(name, ConfigType.LONG, str(MAX_LONG), documentation, minimum=1)


_THROTTLES = (
    _rate(
        "leader.replication.throttled.rate",
        "Bytes a second that this broker gives away of throttled replicas.",
    ),
    _rate(
        "follower.replication.throttled.rate",
        "Bytes a second that this broker fetches of throttled replicas.",
    ),
)

_OWN = (
    _own("node.id", ConfigType.INT, "1", "This node's number, unique in the cluster.", minimum=0),
    _own("broker.rack", ConfigType.STRING, None, "The rack or zone of this node, told to clients."),
    _own(
        "client.routing", ConfigType.STRING, "direct",
        "How clients reach what other nodes lead: direct, they are told who leads and go there, as with Kafka; proxy,"
        " they are told of this node only, and it forwards. Topics may set client.routing for themselves.",
        choices=("direct", "proxy"),
    ),
    _own("log.dir", ConfigType.STRING, "data", "The directory that holds everything the node stores."),
    _own(
        "auto.create.topics.enable", ConfigType.BOOLEAN, "true",
        "Whether asking for the metadata of a topic that does not exist creates it.",
    ),
    _own(
        "num.partitions", ConfigType.INT, "1",
        "Partitions of a topic created without a number of them.", minimum=1,
    ),
    _own(
        "default.replication.factor", ConfigType.INT, "1",
        "Replicas of a topic created without a replication factor.", minimum=1,
    ),
    _own(
        "delete.topic.enable", ConfigType.BOOLEAN, "true",
        "Topics can always be deleted.", choices=("true",),
    ),
    _own(
        "broker.session.timeout.ms", ConfigType.INT, "1500",
        "A broker of several that is silent for this long is fenced.", minimum=50,
    ),
    _own(
        "broker.heartbeat.interval.ms", ConfigType.INT, "200",
        "How often a broker of several tells the controller that it is alive.", minimum=10,
    ),
    _own(
        "replica.lag.time.max.ms", ConfigType.LONG, "30000",
        "A follower that has not caught up with its leader for this long leaves the in-sync set.", minimum=100,
    ),
    _own(
        "replica.fetch.wait.max.ms", ConfigType.INT, "500",
        "How long a leader lets a follower's fetch wait that finds nothing new.", minimum=10, maximum=10000,
    ),
    _own(
        "auto.leader.rebalance.enable", ConfigType.BOOLEAN, "true",
        "Whether the controller gives leadership back to preferred leaders, the first of the replicas.",
    ),
    _own(
        "leader.imbalance.check.interval.seconds", ConfigType.LONG, "300",
        "How often the controller looks for partitions that their preferred leader does not lead.", minimum=1,
    ),
    _own(
        "leader.imbalance.per.broker.percentage", ConfigType.INT, "10",
        "Of the partitions that a broker should lead, this many in a hundred may be led by others.", minimum=0,
    ),
    _own(
        "max.connections", ConfigType.INT, "10000",
        "Connections open at once; one more is closed as soon as it is accepted.", minimum=1, dynamic=True,
    ),
    _own(
        "max.connections.per.ip", ConfigType.INT, "2147483647",
        "Connections open at once from one address.", minimum=1, dynamic=True,
    ),
    _own(
        "producer.id.expiration.ms", ConfigType.INT, "86400000",
        "How long an idempotent producer that writes nothing is remembered.", minimum=1,
    ),
    _own(
        "max.incremental.fetch.session.cache.slots", ConfigType.INT, "1000",
        "Fetch sessions of clients; a client that finds none free names all its partitions in each fetch.", minimum=0,
    ),
    _own(
        "socket.request.max.bytes", ConfigType.INT, "104857600",
        "The largest request; a connection that announces a larger one is closed.", minimum=1,
    ),
    _own(
        "connections.max.idle.ms", ConfigType.LONG, "600000",
        "A connection without a request for this long is closed.", minimum=1,
    ),
    _own(
        "socket.send.buffer.bytes", ConfigType.INT, "-1",
        "The socket's send buffer; -1 leaves it to the system.", minimum=-1,
    ),
    _own(
        "socket.receive.buffer.bytes", ConfigType.INT, "-1",
        "The socket's receive buffer; -1 leaves it to the system.", minimum=-1,
    ),
    _own(
        "log.flush.offset.checkpoint.interval.ms", ConfigType.INT, "60000",
        "How often the offsets up to which logs are flushed are written down; recovery starts from them.",
        minimum=1,
    ),
    _own(
        "log.retention.check.interval.ms", ConfigType.LONG, "300000",
        "How often segments are checked against retention.", minimum=1,
    ),
    _own(
        "log.cleaner.enable", ConfigType.BOOLEAN, "true",
        "Whether topics with cleanup.policy=compact are compacted.",
    ),
    _own(
        "log.cleaner.backoff.ms", ConfigType.LONG, "15000",
        "How long the cleaner waits when there was nothing to compact.", minimum=1, dynamic=True,
    ),
)  # fmt: skip


def _topic_defaults() -> Iterator[ConfigDefinition]:
    own = {definition.name for definition in _OWN}
    for topic in TOPIC_CONFIGS.values():
        if not topic.synonyms or topic.synonyms[0].name in own:
            continue
        strongest, *coarser = topic.synonyms
        yield replace(
            topic,
            name=strongest.name,
            documentation=f"Default of the topic setting {topic.name}: {topic.documentation}",
            synonyms=(),
        )
        for synonym in coarser:
            yield replace(
                topic,
                name=synonym.name,
                type=ConfigType.INT,
                default=None,
                documentation=f"As {strongest.name}, in {synonym.name.rsplit('.', 1)[-1]}; the former wins.",
                dynamic=False,
                synonyms=(),
            )


BROKER_CONFIGS = {
    definition.name: definition
    for definition in (*_OWN, *_THROTTLES, *GROUP_CONFIGS, *SHARE_BROKER_CONFIGS, *_topic_defaults())
}

# What Kafka's tools read of a broker by names that are not set here: see below what is.
SHOWN_BROKER_CONFIGS = {
    definition.name: definition
    for definition in (
        _own("advertised.listeners", ConfigType.STRING, None, "Where clients are told to connect to."),
        _own("broker.id", ConfigType.INT, "-1", "This node's number, unique in the cluster."),
        _own("listeners", ConfigType.STRING, None, "Where the node listens for Kafka clients."),
        _own("log.dirs", ConfigType.STRING, None, "The directory that holds everything the node stores."),
    )
}

UNSUPPORTED_BROKER_CONFIGS = {
    "advertised.listeners": "set broker.advertised_host and broker.advertised_port",
    "broker.id": "set node.id or, in the file, broker.id in the section broker",
    "listeners": "set broker.host and broker.port",
    "log.dirs": "a node keeps its data in one directory; set broker.data_dir or log.dir",
    "port": "set broker.port",
    "process.roles": "set broker.roles",
    "zookeeper.connect": "there is no ZooKeeper; leave it out",
}
