"""Replies come in the order of the requests, whatever takes how long; connections do not wait for each other."""

import resource
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from millstream.broker.server.limit_metrics import share
from millstream.config.settings import PerformanceSettings
from support.node import NodeProcess
from support.raw_client import (
    RawClient,
    batch_of,
    create_topic,
    fetch_fields,
    fetched_partitions,
    produce,
    produce_fields,
)

LONG_MS = 300_000


def test_a_reply_behind_a_waiting_fetch_waits_for_it(
    client: RawClient, connect: Callable[[], RawClient], topic: str
) -> None:
    client.send("fetch", 12, **fetch_fields(topic, 0, max_wait_ms=LONG_MS))
    client.send("metadata", 12, topics=[{"name": topic}])
    client.send(
        "list_offsets", 7, topics=[{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    )
    assert not client.has_reply(within_s=0.3)
    produce(connect(), topic, batch_of(b"a"))
    assert [each.high_watermark for each in fetched_partitions(client.receive())] == [1]
    assert client.receive().topics[0].name == topic
    # Asked and answered before the record came; only the reply had to wait.
    assert client.receive().topics[0].partitions[0].offset == 0


def test_requests_behind_a_slow_one_see_its_effect(client: RawClient, new_topic: Callable[[], str]) -> None:
    name = new_topic()
    topic = {"name": name, "num_partitions": 3, "replication_factor": 1}
    client.send("create_topics", 7, topics=[topic])
    client.send("metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False)
    client.send("produce", 9, **produce_fields(name, batch_of(b"a"), partition=2))
    assert client.receive().topics[0].error_code == 0
    assert len(client.receive().topics[0].partitions) == 3
    assert client.receive().responses[0].partition_responses[0].base_offset == 0
    client.send("delete_topics", 6, topics=[{"name": name}])
    client.send("metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False)
    assert client.receive().responses[0].error_code == 0
    assert client.receive().topics[0].error_code == 3


def test_a_hundred_pipelined_produces_are_answered_in_order_with_growing_offsets(
    client: RawClient, topic: str
) -> None:
    for _ in range(100):
        client.send("produce", 9, **produce_fields(topic, batch_of(b"x", b"y")))
    offsets = [client.receive().responses[0].partition_responses[0].base_offset for _ in range(100)]
    assert offsets == list(range(0, 200, 2))


def test_requests_that_arrive_byte_by_byte_and_all_at_once_are_the_same(
    client: RawClient, topic: str
) -> None:
    requests = b"".join(client.expect("metadata", 1, b"\0\0\0\0") for _ in range(3))
    for byte in requests:
        client.send_bytes(bytes((byte,)))
    for _ in range(3):
        assert client.receive().topics == ()
    many = b"".join(client.expect("metadata", 1, b"\0\0\0\0") for _ in range(5000))
    client.send_bytes(many)
    for _ in range(5000):
        client.receive_body()


def test_large_and_small_requests_in_one_stream_are_cut_apart(client: RawClient, topic: str) -> None:
    sizes = [10, 70_000, 1, 300_000, 65_536, 65_535, 500_000, 5]
    for size in sizes:
        client.send("produce", 9, **produce_fields(topic, batch_of(b"v" * size)))
        client.send("metadata", 12, topics=[{"name": topic}])
    for number in range(len(sizes)):
        assert client.receive().responses[0].partition_responses[0].base_offset == number
        assert client.receive().topics[0].name == topic


def test_more_replies_than_may_wait_behind_a_fetch_still_come_in_order(
    client: RawClient, connect: Callable[[], RawClient], topic: str
) -> None:
    client.send("fetch", 12, **fetch_fields(topic, 0, max_wait_ms=LONG_MS))
    client.send_bytes(b"".join(client.expect("metadata", 1, b"\0\0\0\0") for _ in range(6000)))
    assert not client.has_reply(within_s=0.2)
    produce(connect(), topic, batch_of(b"a"))
    assert len(fetched_partitions(client.receive())) == 1
    for _ in range(6000):
        client.receive_body()


def test_many_connections_are_served_side_by_side(
    broker: NodeProcess, client: RawClient, connect: Callable[[], RawClient], new_topic: Callable[[], str]
) -> None:
    name = create_topic(client, new_topic(), partitions=20)
    blocked = connect()
    blocked.send("fetch", 12, **fetch_fields(name, *[0] * 20, max_wait_ms=LONG_MS, min_bytes=1 << 30))

    def work(partition: int) -> list[int]:
        with RawClient(broker.listen) as mine:
            return [produce(mine, name, batch_of(b"x"), partition=partition).base_offset for _ in range(20)]

    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(work, range(20))) == [list(range(20))] * 20
    assert not blocked.has_reply()


def test_many_idle_connections_disturb_nobody(broker: NodeProcess, client: RawClient, topic: str) -> None:
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A thousand, or nearly as many as the node has files for.
    most = share(files if files != resource.RLIM_INFINITY else 1 << 20, PerformanceSettings()).connections
    idle = [RawClient(broker.listen) for _ in range(min(1000, most - 100))]
    try:
        assert produce(client, topic, batch_of(b"x")).error_code == 0
        assert idle[len(idle) // 2].call("api_versions", 3).error_code == 0
    finally:
        for each in idle:
            each.close()
