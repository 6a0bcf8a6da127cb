"""Settings files of the system's own documents load as printed; what has no effect here is said in a line."""

from pathlib import Path

import pytest

from millstream.config import ConfigError
from millstream.config.definitions import resolve_topic_config
from millstream.config.load import load_settings
from millstream.config.settings import Settings

SECTIONS_FILE = """
broker:
  id: 1
  host: "0.0.0.0"
  port: 9092
  data_dir: "/data/message-queue"
cluster:
  bootstrap_servers:
    - "broker-1:9092"
    - "broker-2:9092"
    - "broker-3:9092"
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
  batch_size: "16KB"
  linger_time: "5ms"
replication:
  default_replication_factor: 3
  min_insync_replicas: 2
  replica_lag_time_max: "10s"
  replica_lag_records_max: 1000
topics:
  gpu-telemetry:
    partitions: 12
    replication_factor: 3
    retention_time: "30d"
    retention_size: "500GB"
    compression_type: "snappy"
    cleanup_policy: "delete"
    segment_size: "1GB"
  system-metrics:
    partitions: 6
    replication_factor: 2
    retention_time: "7d"
    compression_type: "gzip"
"""
FLAT_FILE = """
broker_id: 1
port: 9092
replication_factor: 3
min_insync_replicas: 2
log_retention_hours: 168
"""


def load(tmp_path: Path, text: str, **flags: object) -> Settings:
    path = tmp_path / "millstream.yaml"
    path.write_text(text)
    return load_settings(path, flags={name.replace("__", "."): value for name, value in flags.items()})


def test_the_file_with_sections_loads_as_printed(tmp_path: Path) -> None:
    settings = load(tmp_path, SECTIONS_FILE)
    assert settings.replication.default_replication_factor == 3
    assert [topic.partitions for topic in settings.topics] == [12, 6]
    assert [line.partition(": ")[2].split()[0] for line in settings.warnings] == [
        "performance.batch_size",
        "performance.linger_time",
        "replication.replica_lag_records_max",
    ]


def test_the_flat_file_loads_as_printed(tmp_path: Path) -> None:
    settings = load(tmp_path, FLAT_FILE)
    assert (settings.broker.id, settings.broker.port) == (1, 9092)
    assert settings.replication.min_insync_replicas == 2
    assert settings.storage.retention_time == 168 * 3_600_000
    assert settings.replication.default_replication_factor == 1
    [warning] = settings.warnings
    assert "replication_factor has no effect: the node is alone" in warning


def test_with_other_nodes_the_flat_replication_factor_counts(tmp_path: Path) -> None:
    settings = load(tmp_path, FLAT_FILE + "cluster:\n  bootstrap_servers: ['a:9092', 'b:9092', 'c:9092']\n")
    assert settings.replication.default_replication_factor == 3
    assert settings.warnings == ()


def test_names_of_the_queue_design_load(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        "PartitionStrategy: hash\nReplicationMode: async\nRoutingMode: proxy\nBatchSize: 500\nRingBufferSize: 16384\n",
    )
    assert (settings.replication.placement, settings.broker.client_routing) == ("modulo", "proxy")
    assert resolve_topic_config({}, settings.broker_configs()).replication_mode == "async"
    assert [line.split(": ")[1].split()[0] for line in settings.warnings] == ["BatchSize", "RingBufferSize"]


def test_a_profile_sets_a_group_of_settings_and_each_can_be_set_by_itself(tmp_path: Path) -> None:
    fast = load(tmp_path, "profile: throughput\nreplication:\n  placement: ring\n")
    assert (fast.replication.placement, fast.broker.client_routing) == ("ring", "proxy")
    assert resolve_topic_config({}, fast.broker_configs()).replication_mode == "async"
    safe = load(tmp_path, "profile: throughput\n", broker__profile="consistency")
    assert (safe.replication.placement, safe.replication.min_insync_replicas) == ("balanced", 2)
    assert safe.broker.client_routing == "direct"
    assert resolve_topic_config({}, safe.broker_configs()).replication_mode == "isr"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PartitionStrategy: range", "'range' is not a valid value; use hash, dynamic"),
        ("borker_id: 1", "did you mean 'broker_id'?"),
        ("profile: fast", "use throughput, consistency"),
        ("kafka:\n  log.replication.mode: quorum", "a majority does not exist here: use isr"),
        ("topics:\n  t:\n    replication.mode: quorum", "a majority does not exist here: use isr"),
    ],
)
def test_wrong_names_and_values_are_told_with_advice(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, text)
    assert expected in str(refused.value)
