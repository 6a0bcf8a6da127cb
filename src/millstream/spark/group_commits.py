"""Commits the finished offsets of a streaming query to a consumer group, so that tools can show the query's lag.

Only the checkpoint decides where a query continues. So a failed commit is just a warning, and the next one makes up for
it. The group has no members: nothing is joined or assigned.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.spark.errors import OptionError
from millstream.spark.kafka_properties import kafka_properties, librdkafka_security
from millstream.spark.positions import TopicPartition

log = logging.getLogger("millstream.spark")


@dataclass(frozen=True, slots=True)
class GroupOptions:
    group: str
    properties: Mapping[str, Any] = field(repr=False)


def group_options(options: Mapping[str, str]) -> GroupOptions:
    """The group and properties for `commitOffsets`; raises OptionError without a group."""
    properties = kafka_properties(options)
    group = properties.get("group.id", "").strip()
    if not group:
        raise OptionError("option commitOffsets needs kafka.group.id: which group shall have the offsets?")
    made = {
        "bootstrap.servers": properties["bootstrap.servers"],
        "client.id": properties.get("client.id", "millstream-spark"),
        "group.id": group,
        "enable.auto.commit": False,
        # No log: a failed commit reports an unreachable broker once, the log would do so for every connection.
        "log_level": 0,
        **librdkafka_security(properties),
    }
    return GroupOptions(group, made)


class GroupCommits:
    def __init__(self, options: GroupOptions) -> None:
        self._options = options
        self._consumer: Any = None
        self._committed: Mapping[TopicPartition, int] = {}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        from confluent_kafka import Consumer, KafkaException
        from confluent_kafka import TopicPartition as Place

        places = [Place(topic, partition, offset) for (topic, partition), offset in sorted(offsets.items())]
        if offsets == self._committed:
            return
        try:
            if self._consumer is None:
                self._consumer = Consumer(dict(self._options.properties))
            self._consumer.commit(offsets=places, asynchronous=False)
            self._committed = dict(offsets)
        except KafkaException as error:
            log.warning("offsets were not committed to the group %s: %s", self._options.group, error)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
