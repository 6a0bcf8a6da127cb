"""Acknowledgements that come together are answered as those that come one by one: byte for byte, whatever they say."""

import uuid
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from millstream.client import QueueAdmin
from support.kio_messages import build, encode
from support.node import NodeProcess
from support.raw_client import RawClient, batch_of, create_topic, milliseconds, produce

COUNT, MEMBER = 60, "the same for both"
ACCEPT, RELEASE, RENEW = 1, 2, 4


class Session:
    def __init__(self, bootstrap: str, group: str, topic_id: uuid.UUID) -> None:
        self.client = RawClient(bootstrap)
        self._group, self._topic_id = group, topic_id

    def take(self) -> None:
        """All but the last ten records."""
        taken = 0
        epoch = 0
        while taken < COUNT - 10:
            reply = self.client.call(
                "share_fetch",
                2,
                group_id=self._group,
                member_id=MEMBER,
                share_session_epoch=epoch,
                max_wait=milliseconds(1000),
                min_bytes=1,
                max_bytes=1 << 20,
                max_records=COUNT - 10 - taken,
                batch_size=COUNT,
                share_acquire_mode=1,
                topics=[self._topic([])],
                forgotten_topics_data=[],
            )
            epoch += 1
            for partition in (each for topic in reply.responses for each in topic.partitions):
                taken += sum(one.last_offset - one.first_offset + 1 for one in partition.acquired_records)
        # The session's epoch is 1 from here on, however often it took.
        self.client.call(
            "share_fetch",
            2,
            group_id=self._group,
            member_id=MEMBER,
            share_session_epoch=0,
            max_wait=milliseconds(0),
            min_bytes=1,
            max_bytes=0,
            max_records=0,
            batch_size=1,
            topics=[self._topic([])],
            forgotten_topics_data=[],
        )

    def request(self, epoch: int, index: int, renews: bool, acks: list[tuple[int, int, list[int]]]) -> bytes:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": types}
            for first, last, types in acks
        ]
        fields = {"group_id": self._group, "member_id": MEMBER, "share_session_epoch": epoch}
        topics = [self._topic(batches, index)]
        body = encode(build("share_acknowledge", 2, **fields, is_renew_ack=renews, topics=topics))
        return self.client.expect("share_acknowledge", 2, body)

    def _topic(self, batches: list[dict[str, Any]], index: int = 0) -> dict[str, Any]:
        partition = {"partition_index": index, "acknowledgement_batches": batches}
        return {"topic_id": self._topic_id, "partitions": [partition]}


@pytest.fixture(scope="module")
def sessions(broker: NodeProcess) -> Iterator[Callable[[str], Session]]:
    """A session of a new group that has taken most of the records."""
    made: list[Session] = []
    with RawClient(broker.bootstrap) as client:
        topic = create_topic(client, f"series-{uuid.uuid4().hex[:8]}")
        produce(client, topic, batch_of(*(b"%d" % number for number in range(COUNT))))
    with QueueAdmin(broker.bootstrap) as admin:
        topic_id = admin.topic_id(topic)

        def make(group: str) -> Session:
            admin.alter_group_configs(group, {"share.auto.offset.reset": "earliest"})
            made.append(Session(broker.bootstrap, group, topic_id))
            made[-1].take()
            return made[-1]

        yield make
    for each in made:
        each.client.close()


def story(random: Random) -> Iterator[tuple[int, int, bool, list[tuple[int, int, list[int]]]]]:
    """Mostly one record after the other; now and then something else, and something that is wrong."""
    epoch, offset = 1, random.choice((0, 0, 3))
    for _ in range(120):
        wrong_epoch = random.random() < 0.03
        index, renews, first, last, types = 0, False, offset, offset, [ACCEPT]
        match random.choice((*["usual"] * 20, "range", "again", "far", "backward", "type", "many", "place")):
            case "range":
                last = first + random.randrange(5)
            case "again":
                first = last = max(offset - random.randrange(3), 0)
            case "far":
                first = last = random.choice((-1, COUNT - 3, COUNT, 2**62))
            case "backward":
                last = first - 1
            case "type":
                types, renews = random.choice((([RELEASE], False), ([RENEW], True), ([9], False)))
            case "many":
                types = [ACCEPT, ACCEPT]
            case "place":
                index = 7
        offset = (last if index == 0 and first <= last < COUNT - 10 else offset) + 1
        yield (
            (random.randrange(5_000, 6_000) if wrong_epoch else epoch),
            index,
            renews,
            [(first, last, types)],
        )
        epoch += not wrong_epoch


@pytest.mark.parametrize("seed", range(6))
def test_together_and_one_by_one(sessions: Callable[[str], Session], seed: int) -> None:
    apart, together = sessions(f"apart-{seed}"), sessions(f"together-{seed}")
    told = []
    for each in story(Random(seed)):
        apart.client.send_bytes(apart.request(*each))
        told.append(apart.client.receive_body())
    requests = [together.request(*each) for each in story(Random(seed))]
    together.client.send_bytes(b"".join(requests))
    assert [together.client.receive_body() for _ in requests] == told
