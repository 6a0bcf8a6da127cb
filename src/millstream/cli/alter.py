"""Changes to an existing topic: its settings and its number of partitions."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from millstream.cli.errors import kafka_failure, unknown_topic
from millstream.cli.kafka import REQUEST_TIMEOUT_S


def change_configs(
    client: AdminClient, topic: str, to_set: Mapping[str, str], to_delete: Sequence[str], bootstrap: str
) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in to_set.items()
    ] + [ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE) for name in to_delete]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    futures = client.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
    settle(futures[resource], f"cannot change the configuration of topic {topic!r}", topic, bootstrap)


def add_partitions(client: AdminClient, topic: str, total: int, bootstrap: str) -> None:
    futures = client.create_partitions([NewPartitions(topic, total)], request_timeout=REQUEST_TIMEOUT_S)
    settle(futures[topic], f"cannot give topic {topic!r} {total} partitions", topic, bootstrap)


def settle(future: "Future[Any]", action: str, topic: str, bootstrap: str) -> None:
    try:
        future.result(timeout=REQUEST_TIMEOUT_S + 5)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise unknown_topic(topic, bootstrap) from error
        raise kafka_failure(action, error.args[0], bootstrap) from error
