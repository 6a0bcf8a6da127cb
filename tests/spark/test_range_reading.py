"""What a task does, without Spark around it: ranges of real topics, whole, cut, damaged and gone."""

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from crc32c import crc32c

pytest.importorskip("numba", reason="the `spark` extra is not installed")
pytest.importorskip("pyarrow", reason="the `spark` extra is not installed")

from millstream.client.errors import ClientError, ConnectionFailedError, from_code
from millstream.client.wire.cluster import Cluster
from millstream.client.wire.requests import EARLIEST, LATEST
from millstream.client.wire.settings import ClusterSettings
from millstream.protocol.compression import Compression
from millstream.protocol.errors import ErrorCode
from millstream.protocol.record_batch import CRC_START, HEADER, read_header
from millstream.protocol.records import Record, encode_batch
from millstream.spark.columns import BadRecords, UnreadableBatch
from millstream.spark.errors import DataLoss
from millstream.spark.fetching import RangeReader
from millstream.spark.ranges import OffsetRange
from support.node import NodeProcess
from support.raw_client import RawClient, batch_of, garbage_batch
from support.raw_client import produce as send
from support.topics import admin_for, create_topic


def settings_for(bootstrap: str, **changes: Any) -> ClusterSettings:
    host, _, port = bootstrap.rpartition(":")
    return ClusterSettings(bootstrap=((host, int(port)),), waits_for_topics=True, **changes)


@pytest.fixture(scope="module")
def admin(broker: NodeProcess) -> AdminClient:
    return admin_for(broker.bootstrap)


@pytest.fixture
def topic(admin: AdminClient, new_topic: Callable[[], str]) -> str:
    return create_topic(admin, new_topic())


@pytest.fixture
def cluster(broker: NodeProcess) -> Iterator[Cluster]:
    made = Cluster(settings_for(broker.bootstrap))
    yield made
    made.close()


def read(
    cluster: Cluster,
    topic: str,
    start: int,
    end: int,
    *,
    fail: bool = True,
    headers: bool = False,
    wait_s: float = 20.0,
) -> list[dict[str, Any]]:
    reader = RangeReader(
        cluster,
        OffsetRange(topic, 0, start, end),
        include_headers=headers,
        fail_on_data_loss=fail,
        poll_timeout_s=wait_s,
    )
    return [row for batch in reader.batches() for row in batch.to_pylist()]


def produce(bootstrap: str, topic: str, count: int, **properties: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **properties})
    for number in range(count):
        producer.produce(topic, b"value %d" % number, b"key %d" % number, headers=[("n", b"%d" % number)])
        producer.poll(0)
    assert producer.flush(90) == 0


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_a_client_wrote_is_read(broker: NodeProcess, cluster: Cluster, topic: str, codec: str) -> None:
    produce(broker.bootstrap, topic, 3000, **{"compression.type": codec, "batch.num.messages": 700})
    rows = read(cluster, topic, 100, 2900, headers=True)
    assert [row["offset"] for row in rows] == list(range(100, 2900))
    assert rows[0]["key"] == b"key 100"
    assert rows[-1]["value"] == b"value 2899"
    assert rows[0]["headers"] == [{"key": "n", "value": b"100"}]


def test_small_fetches_cut_batches_and_lose_nothing(broker: NodeProcess, topic: str) -> None:
    produce(broker.bootstrap, topic, 2000, **{"batch.num.messages": 100})
    small = Cluster(settings_for(broker.bootstrap, fetch_bytes=9000))
    try:
        assert [row["offset"] for row in read(small, topic, 0, 2000)] == list(range(2000))
    finally:
        small.close()


def test_a_batch_larger_than_a_fetch_is_read(broker: NodeProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"x" * 500_000)
    producer.flush(90)
    tiny = Cluster(settings_for(broker.bootstrap, fetch_bytes=100))
    try:
        assert [len(row["value"]) for row in read(tiny, topic, 0, 1)] == [500_000]
    finally:
        tiny.close()


def test_a_reader_that_stops_early_leaves_a_usable_connection(
    broker: NodeProcess, cluster: Cluster, topic: str
) -> None:
    produce(broker.bootstrap, topic, 500, **{"batch.num.messages": 50})
    for _ in range(3):
        wanted = OffsetRange(topic, 0, 0, 500)
        reader = RangeReader(
            cluster, wanted, include_headers=False, fail_on_data_loss=True, poll_timeout_s=90
        )
        batches = reader.batches()
        next(batches)
        batches.close()
    assert len(read(cluster, topic, 0, 500)) == 500


def test_deleted_records_fail_or_are_passed_over(
    broker: NodeProcess, admin: AdminClient, cluster: Cluster, topic: str
) -> None:
    produce(broker.bootstrap, topic, 100, **{"batch.num.messages": 10})
    admin.delete_records([Place(topic, 0, 40)])[Place(topic, 0)].result(90)
    with pytest.raises(
        DataLoss, match=r"offsets 10 to 39 of .* are gone: they were deleted\. Set failOnDataLoss"
    ):
        read(cluster, topic, 10, 100)
    assert [row["offset"] for row in read(cluster, topic, 10, 100, fail=False)] == list(range(40, 100))
    assert read(cluster, topic, 10, 30, fail=False) == []


def test_offsets_beyond_the_log_fail_or_are_passed_over(
    broker: NodeProcess, cluster: Cluster, topic: str
) -> None:
    produce(broker.bootstrap, topic, 10)
    with pytest.raises(DataLoss, match="the log ends at 10"):
        read(cluster, topic, 5, 20, wait_s=1)
    assert [row["offset"] for row in read(cluster, topic, 5, 20, fail=False, wait_s=1)] == [5, 6, 7, 8, 9]
    with pytest.raises(DataLoss, match="the log ends at 10"):
        read(cluster, topic, 15, 20)


def test_what_a_new_leader_does_not_show_yet_is_not_passed_over(
    broker: NodeProcess, cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(broker.bootstrap, topic, 10)

    def not_available(_wanted: object) -> NoReturn:
        raise from_code("offsets", ErrorCode.OFFSET_NOT_AVAILABLE)

    monkeypatch.setattr(cluster, "offsets", not_available)
    with pytest.raises(ClientError, match="OFFSET_NOT_AVAILABLE"):
        read(cluster, topic, 5, 20, fail=False, wait_s=1)


def test_a_deleted_topic_fails_or_has_no_rows(
    broker: NodeProcess, admin: AdminClient, cluster: Cluster, topic: str
) -> None:
    produce(broker.bootstrap, topic, 10)
    admin.delete_topics([topic])[topic].result(90)
    with pytest.raises(DataLoss, match="does not exist any more"):
        read(cluster, topic, 0, 10)
    assert read(cluster, topic, 0, 10, fail=False) == []


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_a_batch_that_cannot_be_read_fails_or_is_passed_over(
    broker: NodeProcess, cluster: Cluster, topic: str, codec: Compression
) -> None:
    with RawClient(broker.bootstrap) as client:
        for sent in (batch_of(b"a"), garbage_batch(codec), batch_of(b"b"), uncounted_batch()):
            assert not send(client, topic, sent).error_code
    with pytest.raises(
        UnreadableBatch, match=r"batch at offset [14] .*cannot be read: .*\. Set failOnDataLoss to false"
    ):
        read(cluster, topic, 0, 5)
    assert [row["offset"] for row in read(cluster, topic, 0, 5, fail=False)] == [0, 3]


def uncounted_batch() -> bytes:
    """Sound from outside, with fewer bytes than as many records need as it claims."""
    batch = bytearray(batch_of(b"v"))
    count = 2_000_000_000
    header = read_header(batch)._replace(record_count=count, last_offset_delta=count - 1)
    HEADER.pack_into(batch, 0, *header)
    HEADER.pack_into(batch, 0, *header._replace(crc=crc32c(bytes(batch[CRC_START:]))))
    return bytes(batch)


def test_a_broker_that_restarts_is_waited_for(
    start_node: Callable[..., NodeProcess], new_topic: Callable[[], str]
) -> None:
    node = start_node()
    topic = create_topic(admin_for(node.bootstrap), new_topic())
    produce(node.bootstrap, topic, 300, **{"batch.num.messages": 10})
    cluster = Cluster(settings_for(node.bootstrap, fetch_bytes=2000))
    wanted = OffsetRange(topic, 0, 0, 300)
    reader = RangeReader(cluster, wanted, include_headers=False, fail_on_data_loss=True, poll_timeout_s=60)
    batches = reader.batches()
    seen = [next(batches).num_rows]
    node.stop()
    node.start()
    seen += [batch.num_rows for batch in batches]
    assert sum(seen) == 300
    cluster.close()


def test_a_connection_that_breaks_between_two_batches_is_opened_again(
    broker: NodeProcess, cluster: Cluster, topic: str
) -> None:
    produce(broker.bootstrap, topic, 300, **{"batch.num.messages": 10})
    small = Cluster(settings_for(broker.bootstrap, fetch_bytes=2000))
    wanted = OffsetRange(topic, 0, 0, 300)
    reader = RangeReader(small, wanted, include_headers=False, fail_on_data_loss=True, poll_timeout_s=90)
    seen = 0
    for batch in reader.batches():
        seen += batch.num_rows
        if seen in (10, 150):
            small.leader(topic, 0).close()
    assert seen == 300
    small.close()


def test_nobody_there_is_said_with_the_address() -> None:
    cluster = Cluster(settings_for("127.0.0.1:1", api_timeout_s=0.3))
    with pytest.raises(ConnectionFailedError, match=r"topics cannot be listed: .*cluster at 127.0.0.1:1"):
        cluster.topics(["t"])


def test_offsets_by_time(broker: NodeProcess, cluster: Cluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for time in (1000, 2000, 3000):
        producer.produce(topic, b"v", timestamp=time)
        producer.flush(90)
    place = (topic, 0)
    found = [cluster.offsets({place: time})[place] for time in (EARLIEST, 1500, 3000, 3001, LATEST)]
    assert found == [0, 1, 2, -1, 3]


def test_a_topic_that_is_not_there_is_not_created_by_asking(
    cluster: Cluster, new_topic: Callable[[], str]
) -> None:
    name = new_topic()
    assert cluster.topics([name]) == {}
    assert cluster.topics([name]) == {}


def test_gaps_of_compaction_and_control_batches_have_no_rows() -> None:
    """A log as compaction and transactions leave it, through the reader's own loop over a reply."""
    batches = (
        encode_batch(
            [Record(3, 0, b"a", b"1"), Record(7, 0, b"b", b"2")], base_offset=0, codec=Compression.GZIP
        )
        + encode_batch(
            [Record(8, 0, b"\0\0\0\1", b"")], base_offset=8, producer_id=5, transactional=True, control=True
        )
        + encode_batch([Record(12, 0, b"c", b"3"), Record(19, 0, b"d", b"4")], base_offset=12)
    )
    assert read_reply(batches, 0, 15) == [(3, b"1"), (7, b"2"), (12, b"3")]
    assert read_reply(batches, 4, 20) == [(7, b"2"), (12, b"3"), (19, b"4")]
    cut = batches[:-5]
    assert read_reply(cut, 0, 9) == [(3, b"1"), (7, b"2")]
    damaged = bytearray(batches)
    damaged[70] ^= 1
    with pytest.raises(BadRecords, match="fails its checksum"):
        read_reply(bytes(damaged), 0, 15)


def read_reply(records: bytes, start: int, end: int) -> list[tuple[int, bytes]]:
    from millstream.client.wire.requests import FetchReply

    cluster = Cluster(settings_for("127.0.0.1:1"))
    wanted = OffsetRange("t", 0, start, end)
    reader = RangeReader(cluster, wanted, include_headers=False, fail_on_data_loss=True, poll_timeout_s=1)
    reply = FetchReply(0, 20, 20, 0, (), (0, len(records)))
    chosen = reader._whole_batches(memoryview(records), reply)
    opened = [reader._opened(header, body) for header, body in chosen]
    made = reader._columns.build(opened, start, end)
    return list(zip(made.column("offset").to_pylist(), made.column("value").to_pylist(), strict=True))
