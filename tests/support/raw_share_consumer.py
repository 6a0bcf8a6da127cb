"""One share session of `RawClient`, on a connection of its own."""

import uuid
from datetime import timedelta
from typing import Any

from support.raw_client import RawClient
from support.waiting import wait_for


class RawShareConsumer:
    """One share session on a connection of its own."""

    def __init__(self, bootstrap: str, group: str, topic_id: uuid.UUID, member: str | None = None) -> None:
        self.client = RawClient(bootstrap)
        self.group, self.topic_id = group, topic_id
        self.member = member or str(uuid.uuid4())
        self.epoch = 0

    def fetch(self, acks: Any = (), *, records: int = 10, epoch: int | None = None, **fields: Any) -> Any:
        asked = {
            "max_wait": timedelta(),
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": records,
            "batch_size": records,
        }
        reply = self.client.call(
            "share_fetch",
            2,
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch if epoch is None else epoch,
            **{
                "topics": self.topics(acks),
                "forgotten_topics_data": [],
                "is_renew_ack": False,
                "share_acquire_mode": 1,
                **asked,
                **fields,
            },
        )
        self.epoch += not reply.error_code and epoch is None
        return reply

    def acknowledge(
        self,
        *acks: tuple[int, int, list[int]],
        epoch: int | None = None,
        renews: bool = False,
        topics: list[dict[str, Any]] | None = None,
    ) -> Any:
        reply = self.client.call(
            "share_acknowledge",
            2,
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=renews,
            topics=self.topics(acks) if topics is None else topics,
        )
        self.epoch += not reply.error_code and epoch is None
        return reply

    def code(self, *acks: tuple[int, int, list[int]], renews: bool = False) -> int:
        """What is answered for the partition."""
        return int(self.acknowledge(*acks, renews=renews).responses[0].partitions[0].error_code)

    def take(self, records: int = 10) -> list[tuple[int, int]]:
        """Ranges that were acquired, as soon as there are any."""
        return wait_for(
            lambda: [
                (each.first_offset, each.last_offset)
                for topic in self.fetch(records=records).responses
                for partition in topic.partitions
                for each in partition.acquired_records
            ],
            bool,
            "records",
        )

    def topics(self, acks: Any) -> list[dict[str, Any]]:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": types}
            for first, last, types in acks
        ]
        return [
            {
                "topic_id": self.topic_id,
                "partitions": [{"partition_index": 0, "acknowledgement_batches": batches}],
            }
        ]
