"""All settings of a node, by the sections of its file.

Sizes are bytes, durations are milliseconds, -1 is "no limit". Many settings are Kafka's under a friendlier
name; what was set explicitly is also available by Kafka's names through `Settings.broker_configs`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from millstream.config.kinds import ConfigType, to_text
from millstream.config.mqtt_settings import MqttSettings
from millstream.config.pipeline_settings import PipelineSettings
from millstream.config.proxy_settings import ProxySettings
from millstream.config.setting import Spelling, kafka_setting, own_setting, setting_of
from millstream.config.units import listener_text

_INT = ConfigType.INT
_SIZE = Spelling.SIZE
_DURATION = Spelling.DURATION


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    id: int = kafka_setting("node.id")
    host: str = own_setting(
        "127.0.0.1", "The address to listen on for Kafka clients; 0.0.0.0 is every interface."
    )
    port: int = own_setting(
        9092,
        "The port to listen on for Kafka clients; 0 takes a free one.",
        kind=_INT,
        minimum=0,
        maximum=65535,
    )
    advertised_host: str | None = own_setting(
        None, "The host name clients are told to connect to; when not set, the address they came by."
    )
    advertised_port: int | None = own_setting(
        None,
        "The port clients are told; the port listened on when not set.",
        kind=_INT,
        minimum=1,
        maximum=65535,
    )
    node_listen: str | None = own_setting(
        None,
        "The address (host:port) for other nodes and for gateways without data; the port for clients refuses what only"
        " they may say, and tells them of this one. When not set: broker.host, and the port 10000 above that for"
        " clients if that is below 32768 and free, else any free port.",
    )
    node_advertised_host: str | None = own_setting(
        None,
        "The host name that other nodes use; when not set, the address of node_listen, or advertised_host where that is"
        " not set or listens everywhere.",
    )
    client_routing: str = kafka_setting("client.routing")
    proxy_listen: str | None = own_setting(
        None,
        "A further address (host:port) for Kafka clients, at which this node answers for all nodes as with"
        " client_routing: proxy, whatever that is; none when not set.",
    )
    client_address: str | None = own_setting(
        None,
        "The address (host:port) that clients are told where this node answers for all nodes, if others of the cluster"
        " must use another: that of a NAT or a load balancer. The one they came to when not set.",
    )
    roles: tuple[str, ...] = own_setting(
        ("broker", "controller", "gateway"),
        "What the process does. broker and controller go together; gateway is the HTTP gateway, at http.port. gateway"
        " alone keeps no data: it serves the cluster that cluster.bootstrap_servers or proxy.broker_service names.",
        kind=ConfigType.LIST,
    )
    data_dir: str = kafka_setting("log.dir")
    rack: str | None = kafka_setting("broker.rack")
    profile: str | None = own_setting(
        None,
        "Several settings at once, each of which can still be set by itself. throughput: placement modulo,"
        " replication.mode async, client_routing proxy. consistency: placement balanced, replication.mode isr,"
        " min_insync_replicas 2, client_routing direct.",
        choices=("throughput", "consistency"),
    )
    auto_create_topics: bool = kafka_setting("auto.create.topics.enable")
    default_partitions: int = kafka_setting("num.partitions")


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    bootstrap_servers: tuple[str, ...] = own_setting(
        (),
        "Addresses (host:port) of the cluster's first nodes, the same on each; a node that is alone lists only"
        " itself, or nothing.",
        kind=ConfigType.LIST,
    )
    founding_wait: int = own_setting(
        2000,
        "With all seeds there and no cluster known, so long is waited for a node that knows of one before a new one is"
        " founded. Less only where no other node can know of one.",
        kind=_INT,
        spelling=_DURATION,
        minimum=0,
        maximum=600_000,
    )
    session_timeout: int = kafka_setting("broker.session.timeout.ms", _DURATION)
    heartbeat_interval: int = kafka_setting("broker.heartbeat.interval.ms", _DURATION)
    tick: int = own_setting(
        25,
        "The quorum's unit of time: its leader is heard every 2 of them, and another is elected after 12 to 24 of"
        " silence. More where the nodes are far apart.",
        kind=_INT,
        spelling=_DURATION,
        minimum=1,
        maximum=1000,
    )
    snapshot_size: int = own_setting(
        4 << 20,
        "The quorum's log is begun again from a snapshot when it has grown by this much.",
        kind=_INT,
        spelling=_SIZE,
        minimum=1,
    )
    max_partitions: int = own_setting(
        1_000_000, "Partitions the cluster may hold; creating more is refused.", kind=_INT, minimum=1
    )
    max_partitions_per_request: int = own_setting(
        100_000, "Partitions one request may create, a guard against a mistyped number.", kind=_INT, minimum=1
    )
    max_partitions_at_once: int = own_setting(
        2500,
        "Partitions by which one request may make or grow a topic. A node takes them up in one go, and everybody else"
        " waits meanwhile, some 20 ms for 1000; a larger topic is grown by several requests.",
        kind=_INT,
        minimum=1,
    )


@dataclass(frozen=True, slots=True)
class StorageSettings:
    segment_size: int = kafka_setting("log.segment.bytes", _SIZE)
    segment_time: int = kafka_setting("log.roll.ms", _DURATION)
    retention_time: int = kafka_setting("log.retention.ms", _DURATION)
    retention_size: int = kafka_setting("log.retention.bytes", _SIZE)
    fsync_interval: int | None = kafka_setting(
        "log.flush.interval.ms",
        _DURATION,
        unset=True,
        documentation="How often logs are flushed to disk. When not set, every acknowledgement waits for the "
        "disk; setting it lets acknowledgements go before, so a power failure loses up to this much.",
    )
    checkpoint_interval: int = kafka_setting("log.flush.offset.checkpoint.interval.ms", _DURATION)
    retention_check_interval: int = kafka_setting("log.retention.check.interval.ms", _DURATION)
    cleaner_enabled: bool = kafka_setting("log.cleaner.enable")
    cleaner_interval: int = kafka_setting("log.cleaner.backoff.ms", _DURATION)


@dataclass(frozen=True, slots=True)
class PerformanceSettings:
    max_connections: int = kafka_setting("max.connections")
    max_connections_per_ip: int = kafka_setting("max.connections.per.ip")
    max_request_size: int = kafka_setting("socket.request.max.bytes", _SIZE)
    max_message_size: int = kafka_setting("message.max.bytes", _SIZE)
    max_in_flight_bytes: int = own_setting(
        256 << 20,
        "Memory for requests and replies under way, over all connections; beyond it sockets are not read.",
        kind=ConfigType.LONG,
        spelling=_SIZE,
        minimum=1,
    )
    max_unpacked_batch: int = own_setting(
        64 << 20,
        "What a batch may unpack to where the node opens it: in compacted topics, and where compression.type is not"
        " the producer's. More is refused with MESSAGE_TOO_LARGE.",
        kind=ConfigType.LONG,
        spelling=_SIZE,
        minimum=1 << 20,
    )
    max_opened_records: int = own_setting(
        500_000,
        "Records of a batch that the node opens; more are refused with MESSAGE_TOO_LARGE.",
        kind=_INT,
        minimum=1000,
    )
    max_producers: int = own_setting(
        500_000,
        "Idempotent producers that the node remembers, some 300 bytes each, counted once in each partition. For one"
        " more, the longest idle is forgotten; where all were busy within ten minutes, it is refused with"
        " THROTTLING_QUOTA_EXCEEDED.",
        kind=_INT,
        minimum=1,
    )
    max_producers_per_partition: int = own_setting(
        100_000, "As max_producers, of one partition.", kind=_INT, minimum=1
    )
    producer_expiration: int = kafka_setting("producer.id.expiration.ms", _DURATION)
    max_fetch_sessions: int = kafka_setting("max.incremental.fetch.session.cache.slots")
    max_fetch_session_partitions: int = own_setting(
        250_000,
        "Partitions in all fetch sessions together, some 500 bytes each; a fetch that finds no room has no session.",
        kind=_INT,
        minimum=1,
    )
    max_queues: int = own_setting(
        20_000,
        "Queues (a share group on a partition) that this node leads; one more is refused, and idle ones make room.",
        kind=_INT,
        minimum=1,
    )
    idle_timeout: int = kafka_setting("connections.max.idle.ms", _DURATION)
    socket_send_buffer: int = kafka_setting("socket.send.buffer.bytes", _SIZE)
    socket_receive_buffer: int = kafka_setting("socket.receive.buffer.bytes", _SIZE)
    max_open_files: int | None = own_setting(
        None,
        "Log files kept open at once; derived from the system's limit (ulimit -n) when not set.",
        kind=_INT,
        minimum=16,
    )


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    default_replication_factor: int = kafka_setting("default.replication.factor")
    min_insync_replicas: int = kafka_setting("min.insync.replicas")
    replica_lag_time_max: int = kafka_setting("replica.lag.time.max.ms", _DURATION)
    replica_fetch_wait_max: int = kafka_setting("replica.fetch.wait.max.ms", _DURATION)
    replica_selector: str = own_setting(
        "rack",
        "Where clients that name their rack (client.rack) read from: rack sends them to an in-sync replica of their"
        " rack, leader keeps them at the leader.",
        choices=("rack", "leader"),
    )
    auto_leader_rebalance: bool = kafka_setting("auto.leader.rebalance.enable")
    leader_imbalance_check_seconds: int = kafka_setting("leader.imbalance.check.interval.seconds")
    leader_imbalance_percentage: int = kafka_setting("leader.imbalance.per.broker.percentage")
    placement: str = kafka_setting("log.placement")
    virtual_nodes: int = own_setting(
        150,
        "Points of each broker on the ring by which placement ring chooses; all nodes of a cluster have the same.",
        kind=_INT,
        minimum=1,
        maximum=10_000,
    )


@dataclass(frozen=True, slots=True)
class HttpSettings:
    host: str = own_setting("127.0.0.1", "The address to listen on for HTTP: messages, /metrics and /health.")
    port: int | None = own_setting(
        None, "The port to listen on for HTTP; 0 takes a free one, not set turns it off.",
        kind=_INT, minimum=0, maximum=65535,
    )  # fmt: skip
    allowed_hosts: tuple[str, ...] = own_setting(
        (),
        "Public names that the HTTP port is reached by: mq.example.com, .example.com for all below it, * for all."
        " Addresses, names without a dot and private names (.svc, .cluster.local, .internal, .local) always are.",
        kind=ConfigType.LIST,
    )
    max_connections: int = own_setting(
        12_000, "HTTP connections at a time, streams included; further ones are answered with 503.",
        kind=_INT, minimum=1,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogSettings:
    level: str = own_setting(
        "info", "The least severe log lines written.", choices=("debug", "info", "warning", "error")
    )
    format: str = own_setting(
        "auto", "text for people, json for machines, auto for text on a terminal and json elsewhere.",
        choices=("auto", "text", "json"),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic of the section `topics`, created if it does not exist once there are enough brokers.

    A replication factor of -1 stands for the default.
    """

    name: str
    partitions: int = 1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    broker: BrokerSettings = BrokerSettings()
    cluster: ClusterSettings = ClusterSettings()
    storage: StorageSettings = StorageSettings()
    performance: PerformanceSettings = PerformanceSettings()
    replication: ReplicationSettings = ReplicationSettings()
    http: HttpSettings = HttpSettings()
    mqtt: MqttSettings = field(default_factory=MqttSettings)
    proxy: ProxySettings = field(default_factory=ProxySettings)
    log: LogSettings = LogSettings()
    pipeline: PipelineSettings = field(default_factory=PipelineSettings)
    topics: tuple[TopicSettings, ...] = ()
    kafka: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    """One line for each given setting that has no effect."""

    @property
    def is_gateway_alone(self) -> bool:
        return set(self.broker.roles) == {"gateway"}

    @property
    def is_one_of_several(self) -> bool:
        """Whether the node looks for others: several addresses are listed, or one that is not its own."""
        servers = set(self.cluster.bootstrap_servers)
        own_ports = {self.broker.port, self.broker.advertised_port or self.broker.port}
        return len(servers) > 1 or any(int(server.rpartition(":")[2]) not in own_ports for server in servers)

    def broker_configs(self) -> dict[str, str]:
        """The broker's settings by Kafka's names: what was set explicitly or differs from the default."""
        configs = dict(self.kafka)
        for section in SECTIONS:
            values = getattr(self, section)
            for each in fields(values):
                value = getattr(values, each.name)
                if value != each.default and (kafka_name := setting_of(each).kafka_name) is not None:
                    configs[kafka_name] = to_text(value)
        return configs

    def shown_configs(self) -> dict[str, str]:
        """What tools read of a broker by Kafka's names, and what is set by others here."""
        broker = self.broker
        return {
            "broker.id": str(broker.id),
            "listeners": listener_text("PLAINTEXT", broker.host, broker.port),
            "log.dirs": broker.data_dir,
        }


SECTIONS: dict[str, type] = {
    "broker": BrokerSettings,
    "cluster": ClusterSettings,
    "storage": StorageSettings,
    "performance": PerformanceSettings,
    "replication": ReplicationSettings,
    "http": HttpSettings,
    "mqtt": MqttSettings,
    "proxy": ProxySettings,
    "log": LogSettings,
    "pipeline": PipelineSettings,
}
