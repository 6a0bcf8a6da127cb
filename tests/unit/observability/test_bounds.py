"""Everything that a client can multiply has a setting that bounds it, and a metric of how much of it there is.

A new setting with "max" in its name belongs in one of the lists: whoever adds it names the metric.
`test_operations_page.py` holds that the page's metrics are those that a node has.
"""

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from millstream.config.definitions import BROKER_CONFIGS
from millstream.config.settings import Settings

PAGE = (Path(__file__).parents[3] / "docs" / "OPERATIONS.md").read_text()
LIMITS, METRICS = PAGE.split("## Limits")[1].split("## Metrics")

CONNECTIONS, MQTT_CLIENTS = "millstream_connections", "millstream_mqtt_clients_connected"
BOUNDS = {
    "max.connections": CONNECTIONS,
    "max.connections.per.ip": "millstream_addresses",
    "performance.max_in_flight_bytes": "millstream_in_flight_bytes",
    "performance.max_producers": "millstream_producers",
    "performance.max_producers_per_partition": "millstream_producers_of_one_partition",
    "max.incremental.fetch.session.cache.slots": "millstream_fetch_sessions",
    "performance.max_fetch_session_partitions": "millstream_fetch_session_partitions",
    "performance.max_queues": "millstream_queues",
    "group.max.count": "millstream_groups",
    "group.max.size": "millstream_group_members",
    "group.consumer.max.size": "millstream_group_members",
    "group.share.max.size": "millstream_group_members",
    "group.max.bytes": "millstream_groups_bytes",
    "group.consumer.regex.max.count": "millstream_groups_regexes",
    "group.share.max.share.sessions": "millstream_share_sessions",
    "offsets.max.count": "millstream_groups_offsets",
    "offsets.max.bytes": "millstream_groups_offset_bytes",
    "cluster.max_partitions": "millstream_partitions",
    "http.max_connections": "millstream_http_connections",
    "proxy.max_in_flight": "proxy_in_flight_bytes",
    "proxy.failover_buffer": "proxy_buffered_bytes",
    "mqtt.max_connections": MQTT_CLIENTS,
    "mqtt.max_sessions": "millstream_mqtt_sessions",
    "mqtt.max_subscriptions": "millstream_mqtt_subscriptions_count",
    "mqtt.max_owed_bytes": "millstream_mqtt_owed_bytes",
    "mqtt.max_retained": "millstream_mqtt_retained_messages_count",
    "mqtt.max_retained_size": "millstream_mqtt_retained_messages_bytes",
    # Of one connection each, so the connections multiply them.
    "mqtt.max_inflight": MQTT_CLIENTS,
    "mqtt.max_queued": MQTT_CLIENTS,
    "mqtt.max_queued_bytes": MQTT_CLIENTS,
    "mqtt.max_unsent_bytes": MQTT_CLIENTS,
    "mqtt.receive_maximum": MQTT_CLIENTS,
    # Of one request each, so the memory of requests under way shows them.
    "socket.request.max.bytes": "millstream_in_flight_bytes",
    "performance.max_unpacked_batch": "millstream_in_flight_bytes",
    "performance.max_opened_records": "millstream_in_flight_bytes",
    "mqtt.max_packet_size": MQTT_CLIENTS,
    "proxy.max_body_size": "millstream_http_buffered_bytes",
    "group.member.max.bytes": "millstream_groups_bytes",
    "group.consumer.regex.max.length": "millstream_groups_regexes",
    "offset.metadata.max.bytes": "millstream_groups_offsets",
    "cluster.max_partitions_per_request": "millstream_partitions",
    "cluster.max_partitions_at_once": "millstream_partitions",
}
NOTHING_TO_MULTIPLY = {
    # Times.
    "replica.lag.time.max.ms", "replica.fetch.wait.max.ms", "connections.max.idle.ms", "mqtt.max_session_expiry",
    "group.max.session.timeout.ms", "group.consumer.max.session.timeout.ms", "group.share.max.session.timeout.ms",
    "group.consumer.max.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms",
    "group.share.max.assignment.interval.ms", "group.share.max.record.lock.duration.ms",
    "log.cleaner.max.compaction.lag.ms",
    "log.message.timestamp.after.max.ms", "log.message.timestamp.before.max.ms",
    # What a group's own setting may be.
    "group.share.max.delivery.count.limit", "group.share.min.partition.max.record.locks",
    "group.share.max.partition.max.record.locks",
    # What others are told, or this program's own work and files.
    "message.max.bytes", "log.index.size.max.bytes", "performance.max_open_files", "proxy.max_partitions",
    "pipeline.max_offsets_per_trigger", "pipeline.max_record_size", "pipeline.max_ahead",
    # Of one queue or consumer, within the records of its partition: `millstream_queue_in_flight`.
    "group.share.partition.max.record.locks", "mqtt.max_queue_held",
    # A number of one connection that costs a few bytes.
    "mqtt.topic_alias_maximum",
}  # fmt: skip


def settings_of(section: type, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in fields(section):
        if isinstance(each.type, type) and is_dataclass(each.type):
            found |= settings_of(each.type, f"{prefix}{each.name}.")
        else:
            found[prefix + each.name] = each
    return found


OWN = settings_of(Settings)


@pytest.mark.parametrize(("setting", "metric"), BOUNDS.items())
def test_a_bound_is_a_setting_and_has_a_metric_and_the_page_tells_of_both(setting: str, metric: str) -> None:
    assert setting in OWN or setting in BROKER_CONFIGS
    assert f"`{setting}`" in LIMITS
    assert f"`{metric}`" in METRICS


def test_every_setting_that_may_be_a_bound_is_in_a_list() -> None:
    own = {
        name
        for name, each in OWN.items()
        if "setting" in each.metadata and not each.metadata["setting"].kafka_name
    }
    named = own | BROKER_CONFIGS.keys()
    may_be = {name for name in named if "max" in name.split(".", 1)[-1].replace("_", ".").split(".")}
    assert may_be - BOUNDS.keys() - NOTHING_TO_MULTIPLY == set()
    assert BOUNDS.keys() & NOTHING_TO_MULTIPLY == set()
