from pathlib import Path

import pytest

from millstream.config import ConfigError
from millstream.config.definitions import resolve_topic_config
from millstream.config.load import load_settings
from millstream.config.settings import BrokerSettings, Settings, StorageSettings, TopicSettings


@pytest.fixture
def write(tmp_path: Path):
    def write_file(text: str) -> Path:
        path = tmp_path / "millstream.yaml"
        path.write_text(text)
        return path

    return write_file


def test_nothing_given_means_the_defaults() -> None:
    settings = load_settings()
    assert settings == Settings()
    assert settings.broker_configs() == {}


def test_a_file_in_the_documented_shape_is_read(write) -> None:
    settings = load_settings(
        write("""
broker:
  id: 4
  host: "0.0.0.0"
  port: 9092
  data_dir: "/data/message-queue"
cluster:
  bootstrap_servers: ["broker-4:9092"]
storage:
  segment_size: "1GB"
  segment_time: "24h"
  retention_time: "7d"
  retention_size: "100GB"
  fsync_interval: "1s"
performance:
  max_connections: 10000
  socket_send_buffer: "100KB"
  socket_receive_buffer: "100KB"
  max_message_size: "1MB"
replication:
  default_replication_factor: 1
  min_insync_replicas: 1
topics:
  gpu-telemetry:
    partitions: 12
    replication_factor: 1
    retention_time: "30d"
    retention_size: "500GB"
    compression_type: "snappy"
    cleanup_policy: "delete"
    segment_size: "1GB"
  system-metrics:
    partitions: 6
    retention.ms: 604800000
    cleanup.policy: [compact, delete]
  plain:
log:
# level: debug
""")
    )
    assert settings.broker == BrokerSettings(id=4, host="0.0.0.0", data_dir="/data/message-queue")
    assert settings.cluster.bootstrap_servers == ("broker-4:9092",)
    assert settings.storage.segment_time == 86_400_000
    assert settings.storage.fsync_interval == 1000
    assert settings.performance.socket_send_buffer == 102_400
    assert settings.topics == (
        TopicSettings(
            "gpu-telemetry",
            12,
            1,
            {
                "retention.ms": "2592000000",
                "retention.bytes": str(500 << 30),
                "compression.type": "snappy",
                "cleanup.policy": "delete",
                "segment.bytes": str(1 << 30),
            },
        ),
        TopicSettings(
            "system-metrics", 6, 1, {"retention.ms": "604800000", "cleanup.policy": "compact,delete"}
        ),
        TopicSettings("plain", 1, 1),
    )
    configs = settings.broker_configs()
    assert configs["log.segment.bytes"] == str(1 << 30)  # explicit although it is the default
    assert configs["log.flush.interval.ms"] == "1000"
    assert "log.cleaner.enable" not in configs
    assert not resolve_topic_config({}, configs).durable


def test_flags_win_over_the_environment_which_wins_over_the_file(write) -> None:
    file = write("broker: {id: 1, port: 1001, rack: a}\nhttp: {port: 1}")
    environ = {"MILLSTREAM_BROKER_PORT": "1002", "MILLSTREAM_BROKER_ID": "2", "PATH": "/bin"}
    settings = load_settings(file, environ, {"broker.port": 1003, "broker.id": None})
    assert (settings.broker.id, settings.broker.port, settings.broker.rack, settings.http.port) == (
        2,
        1003,
        "a",
        1,
    )


def test_a_stronger_source_replaces_every_spelling_of_a_setting(write) -> None:
    file = write("storage: {retention_time: 7d}")
    settings = load_settings(file, {"MILLSTREAM_KAFKA_LOG_RETENTION_HOURS": "1"})
    assert settings.storage.retention_time == 3_600_000
    assert resolve_topic_config({}, settings.broker_configs()).retention_ms == 3_600_000


def test_kafka_names_reach_the_section_that_has_a_friendlier_name(write) -> None:
    settings = load_settings(write("kafka:\n  socket.request.max.bytes: 1000\n  log.preallocate: true"))
    assert settings.performance.max_request_size == 1000
    assert settings.broker_configs() == {"socket.request.max.bytes": "1000", "log.preallocate": "true"}


def test_settings_made_in_code_have_their_kafka_names_too() -> None:
    settings = Settings(storage=StorageSettings(segment_size=4096, fsync_interval=5))
    assert settings.broker_configs() == {"log.segment.bytes": "4096", "log.flush.interval.ms": "5"}


def test_the_file_can_be_named_by_the_environment(write) -> None:
    file = write("broker: {id: 7}")
    assert load_settings(None, {"MILLSTREAM_CONFIG": str(file)}).broker.id == 7


def test_kubernetes_service_links_are_not_settings() -> None:
    environ = {
        "MILLSTREAM_SERVICE_HOST": "10.0.0.1",
        "MILLSTREAM_SERVICE_PORT": "9092",
        "MILLSTREAM_SERVICE_PORT_KAFKA": "9092",
        "MILLSTREAM_PORT": "tcp://10.0.0.1:9092",
        "MILLSTREAM_PORT_9092_TCP": "tcp://10.0.0.1:9092",
        "MILLSTREAM_PORT_9092_TCP_ADDR": "10.0.0.1",
        "MILLSTREAM_BROKER_PORT": "tcp://10.0.0.1:9092",
    }
    assert load_settings(None, environ) == Settings()


def test_lists_come_from_the_environment_separated_by_commas() -> None:
    environ = {"MILLSTREAM_CLUSTER_BOOTSTRAP_SERVERS": "localhost:9092"}
    assert load_settings(None, environ).cluster.bootstrap_servers == ("localhost:9092",)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("broker:\n  prot: 9", 2, "broker.prot: is not a setting; did you mean 'port'?"),
        ("brokr:\n  port: 9", 2, "brokr: is not a section of the settings; did you mean 'broker'?"),
        ("broker:\n  retention_time: 7d", 2, "did you mean 'storage.retention_time'?"),
        ("broker:\n  port: http", 2, "broker.port: 'http' is not a valid value; write a plain number"),
        ("broker:\n  port: 70000", 2, "broker.port: '70000' is not a valid value; it must be 0 to 65535"),
        ("broker:\n  host: ''", 2, "must not be empty"),
        ("broker:\n  port: {a: 1}", 2, "broker.port: {'a': 1} is not a single value"),
        ("broker:\n\n  id: 1\n  id: 2", 4, "id: is there twice"),
        ("broker: 5", 1, "broker: must be a mapping"),
        ("- 5", 1, "the file: must be a mapping"),
        ("broker:\n  id: 'a", 2, "is not valid YAML"),
        ("broker:\n  host: !!python/name:os.system ''", 2, "is not valid YAML"),
        ("storage:\n  retention_time: 7", 2, "storage.retention_time: 7 has no unit"),
        ("storage:\n  segment_size: 1XB", 2, "unknown unit 'XB'"),
        (
            "storage:\n  retention_time: 7d\nkafka:\n  log.retention.ms: 5",
            4,
            "same setting as storage.retention_time",
        ),
        ("kafka:\n  log.retention.ms: 7d", 2, "log.retention.ms: '7d' is not a valid value"),
        ("kafka:\n  log.retentoin.ms: 7", 2, "did you mean 'log.retention.ms'?"),
        ("kafka:\n  listeners: a", 2, "set broker.host and broker.port"),
        (
            "replication:\n  default_replication_factor: 3",
            2,
            "the node is alone: there cannot be 3 replicas; write",
        ),
        ("kafka:\n  default.replication.factor: 3", 2, "write default_replication_factor: 1"),
        ("cluster:\n  bootstrap_servers: [a]", 2, "'a' is not an address"),
        (
            "topics:\n  t:\n    partitions: 0",
            3,
            "topics.t.partitions: '0' is not a valid value; it must be 1 or more",
        ),
        ("topics:\n  t:\n    retention_tiem: 5", 3, "did you mean 'retention_time'?"),
        ("topics:\n  t:\n    retention.ms: 5d", 3, "topics.t.retention.ms: '5d' is not a valid value"),
        ("topics:\n  t:\n    retention_time: 5d\n    retention.ms: 5", 4, "same setting as retention_time"),
        ("topics:\n  t:\n    remote.storage.enable: true", 3, "tiered storage"),
        ("topics:\n  t:\n    replication_factor: 3", 3, "there cannot be 3 replicas"),
        (
            "topics:\n  t: {min.compaction.lag.ms: 9, max.compaction.lag.ms: 5}",
            2,
            "is more than max.compaction.lag",
        ),
        ("topics:\n  a/b:\n    partitions: 1", 3, "topics.a/b: is not a topic name"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line_and_advice(write, text: str, line: int, says: str) -> None:
    file = write(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(file)
    message = str(caught.value)
    assert says in message
    assert message.startswith(f"{file}:{line}: ")
    assert "\n" not in message


def test_a_file_that_is_missing_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_settings(tmp_path / "none.yaml")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_settings(binary)
    binary.write_bytes(b"broker:\n  host: \x01")
    with pytest.raises(ConfigError, match="YAML"):
        load_settings(binary)


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        (
            {"MILLSTREAM_BROKER_PROT": "1"},
            "environment variable MILLSTREAM_BROKER_PROT: broker.prot: is not a setting",
        ),
        ({"MILLSTREAM_BROEKR_PORT": "1"}, "did you mean 'MILLSTREAM_BROKER_PORT'?"),
        ({"MILLSTREAM_TOPICS_A": "1"}, "is not a setting"),
        ({"MILLSTREAM_KAFKA_NUM_PARTITION": "1"}, "did you mean 'num.partitions'?"),
        ({"MILLSTREAM_LOG_LEVEL": "loud"}, "use debug, info, warning, error"),
    ],
)
def test_a_wrong_variable_is_refused_by_its_name(environ: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(None, environ)
    assert says in str(caught.value)


def test_a_wrong_flag_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"command line: broker\.port: 'x' is not a valid value"):
        load_settings(flags={"broker.port": "x"})


@pytest.mark.parametrize(
    ("servers", "is_one_of_several"),
    [("", False), ("localhost:9092", False), ("localhost:9093", True), ("a:9092,b:9092,c:9092", True)],
)
def test_a_node_looks_for_others_when_it_lists_any(servers: str, is_one_of_several: bool) -> None:
    settings = load_settings(None, {}, {"cluster.bootstrap_servers": servers} if servers else {})
    assert settings.is_one_of_several is is_one_of_several


def test_a_declared_topic_without_a_factor_has_the_default_one(write) -> None:
    text = """
cluster:
  bootstrap_servers: [a:1, b:1, c:1]
replication:
  default_replication_factor: 3
topics:
  plain: {}
  single:
    replication_factor: 1
"""
    settings = load_settings(write(text), {})
    assert [topic.replication_factor for topic in settings.topics] == [3, 1]
