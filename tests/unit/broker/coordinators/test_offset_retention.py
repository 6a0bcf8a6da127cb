"""Offsets of a group that nobody uses go after their retention: a running node whose clock is the test's."""

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.testing.clock import ManualClock
from millstream.testing.disk import SimulatedDisk
from support.inprocess import node_on
from support.waiting import wait_for

MINUTE_MS = 60_000
SETTINGS = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "20"}


class GroupOffsets:
    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._admin.create_topics([NewTopic("orders", 1)])["orders"].result(90)

    def commit(self, group: str, offset: int) -> None:
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition("orders", 0, offset)])
        self._admin.alter_consumer_group_offsets([wanted])[group].result(90)

    def committed(self, group: str) -> int:
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition("orders", 0)])
        answer = self._admin.list_consumer_group_offsets([asked])[group].result(90)
        return int(answer.topic_partitions[0].offset)

    def groups(self) -> set[str]:
        return {group.group_id for group in self._admin.list_consumer_groups().result(90).valid}


def test_offsets_are_kept_for_their_retention_and_no_longer() -> None:
    clock = ManualClock()
    with node_on(SimulatedDisk(), clock=clock, kafka=SETTINGS) as node:
        offsets = GroupOffsets(node.listen)
        offsets.commit("old", 5)
        clock.advance(MINUTE_MS // 2)
        offsets.commit("young", 7)
        assert offsets.committed("old") == 5
        clock.advance(MINUTE_MS // 2 + 1)
        wait_for(offsets.groups, lambda groups: "old" not in groups, "offsets go after their retention")
        assert offsets.committed("old") < 0
        assert offsets.committed("young") == 7
        assert offsets.groups() == {"young"}
