"""A whole node on a simulated disk, and the machine loses power at any moment: no acknowledged message is lost.

The node is not disturbed: at a drawn moment a twin of its disk is taken, as it is with half-written files and unsynced
names, and loses power in its stead. A second node starts from what is left.
"""

import random
import threading
from collections.abc import Iterator

import pytest

from millstream.protocol.record_batch import iter_batches
from millstream.protocol.records import decode_records
from millstream.testing.disk import SimulatedDisk
from support.inprocess import InProcessNode, node_on
from support.raw_client import RawClient, batch_of, create_topic, fetch_fields, fetched_partitions, produce

TOPICS = {"small-segments": {"segment_bytes": 3000}, "one-segment": {}}
LOSSES = 12


class Producer:
    """Sends numbered values one after the other and remembers which were acknowledged, at which offset."""

    def __init__(self, listen: str, topic: str) -> None:
        self.topic = topic
        self.acknowledged: list[tuple[int, bytes]] = []
        self._listen = listen
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _work(self) -> None:
        with RawClient(self._listen) as client:
            sequence = 0
            while not self._stopping.is_set():
                value = b"%s-%d" % (self.topic.encode(), sequence)
                outcome = produce(
                    client,
                    self.topic,
                    batch_of(value * 10, producer_id=1000, producer_epoch=0, base_sequence=sequence),
                )
                assert outcome.error_code == 0, outcome
                self.acknowledged.append((outcome.base_offset, value * 10))
                sequence += 1


@pytest.fixture(params=[False, True], ids=["any-order", "journaled"])
def disk(request: pytest.FixtureRequest) -> SimulatedDisk:
    return SimulatedDisk(seed=1, journaled=request.param)


@pytest.fixture
def producers(disk: SimulatedDisk) -> Iterator[list[Producer]]:
    with node_on(disk, checkpoint_interval=70) as node:
        with RawClient(node.listen) as client:
            for topic, configs in TOPICS.items():
                create_topic(client, topic, **configs)
        started = [Producer(node.listen, topic) for topic in TOPICS]
        try:
            yield started
        finally:
            for producer in started:
                producer.stop()


def values(node: InProcessNode, topic: str) -> list[tuple[int, bytes]]:
    """Everything in the topic by its offset, read through the protocol."""
    found: list[tuple[int, bytes]] = []
    with RawClient(node.listen) as client:
        while True:
            reply = client.call("fetch", 12, **fetch_fields(topic, found[-1][0] + 1 if found else 0))
            (fetched,) = fetched_partitions(reply)
            assert fetched.error_code == 0
            data = memoryview(fetched.records or b"")
            batches = [data[at : at + header.size_bytes] for at, header in iter_batches(data)]
            if not batches:
                return found
            found += [
                (record.offset, record.value or b"")
                for batch in batches
                for record in decode_records(batch, 1 << 20)
            ]


def check_retry_is_recognised(node: InProcessNode, topic: str, found: list[tuple[int, bytes]]) -> None:
    """The last batch that survived is known as written; the one after it is new."""
    with RawClient(node.listen) as client:
        for offset, value in [*found[-1:], (len(found), b"new")]:
            batch = batch_of(value, producer_id=1000, producer_epoch=0, base_sequence=offset)
            outcome = produce(client, topic, batch)
            assert (outcome.error_code, outcome.base_offset) == (0, offset)
    assert values(node, topic) == [*found, (len(found), b"new")]


def test_whenever_the_power_goes_what_was_acknowledged_is_there(
    disk: SimulatedDisk, producers: list[Producer]
) -> None:
    chance = random.Random(3)
    pause = threading.Event()
    for _ in range(LOSSES):
        pause.wait(chance.uniform(0.02, 0.15))
        promised = {producer.topic: len(producer.acknowledged) for producer in producers}
        twin = disk.twin()
        twin.restart(power_loss=True)
        with node_on(twin) as survivor:
            for producer in producers:
                found = values(survivor, producer.topic)
                count = promised[producer.topic]
                assert found[:count] == producer.acknowledged[:count]
                # What was under way may be there too, but nothing else, and nothing twice.
                assert [offset for offset, _ in found] == list(range(len(found)))
                assert len(set(found)) == len(found) <= len(producer.acknowledged) + 1
                check_retry_is_recognised(survivor, producer.topic, found)
    assert all(len(producer.acknowledged) > LOSSES for producer in producers)
