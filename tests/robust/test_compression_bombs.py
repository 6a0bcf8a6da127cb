"""Batches that the node opens: piece by piece, and refused when they unpack to too much."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.protocol.compression import Compression
from millstream.protocol.record_batch import HEADER_SIZE, read_header
from millstream.protocol.records import Record, decode_records, encode_batch, seal_packed
from support.node import NodeProcess
from support.raw_client import RawClient, create_topic, fetch_fields, fetched_partitions, produce
from support.waiting import wait_for

MB = 1 << 20
MESSAGE_TOO_LARGE = 10
INVALID_RECORD = 87
CODECS = [codec for codec in Compression if codec is not Compression.NONE]


@pytest.fixture
def node(start_node: Callable[..., NodeProcess]) -> NodeProcess:
    return start_node(settings={"performance.max_unpacked_batch": "8MB"})


def peak_mb(node: NodeProcess) -> float:
    lines = Path(f"/proc/{node.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def keyed(count: int, size: int, codec: Compression) -> bytes:
    return encode_batch([Record(i, 1000 + i, b"k", b"v" * size) for i in range(count)], codec=codec)


def many_tiny_records(claimed: int, unpacked_mb: int) -> bytes:
    """A gzip of records of seven bytes, of which the header claims so many."""
    header = read_header(memoryview(keyed(1, 1, Compression.GZIP)))
    record = encode_batch([Record(0, 0, b"k", b"")])[HEADER_SIZE:]
    packed = gzip.compress(record * (unpacked_mb * MB // len(record)), 9)
    return seal_packed(header._replace(record_count=claimed, last_offset_delta=claimed - 1), packed)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("config", [{"cleanup_policy": "compact"}, {"compression_type": "uncompressed"}])
def test_what_unpacks_to_more_than_the_limit_is_refused_in_bounded_memory(
    node: NodeProcess, new_topic: Callable[[], str], codec: Compression, config: dict[str, object]
) -> None:
    with RawClient(node.listen) as client:
        name = create_topic(client, new_topic(), max_message_bytes=64 * MB, **config)
        assert produce(client, name, keyed(7, MB, codec)).error_code == 0
        too_large = keyed(9, MB, codec)
        # Each thread of the node keeps some memory for its next batch.
        for _ in range(12):
            assert produce(client, name, too_large).error_code == MESSAGE_TOO_LARGE
        before = peak_mb(node)
        assert before < 300
        # Again and again: what one of them leaves behind would add up to 288 MB.
        for _ in range(36):
            assert produce(client, name, too_large).error_code == MESSAGE_TOO_LARGE
        assert peak_mb(node) < before + 140


def test_one_record_beyond_the_limit_leaves_nothing_behind(
    node: NodeProcess, new_topic: Callable[[], str]
) -> None:
    """All of it that was unpacked is held until the record is whole, which it never is."""
    with RawClient(node.listen) as client:
        name = create_topic(client, new_topic(), cleanup_policy="compact")
        bomb = keyed(1, 30 * MB, Compression.ZSTD)
        for _ in range(8):
            assert produce(client, name, bomb).error_code == MESSAGE_TOO_LARGE
        before = peak_mb(node)
        for _ in range(40):
            assert produce(client, name, bomb).error_code == MESSAGE_TOO_LARGE
        assert peak_mb(node) < before + 100


def test_more_records_than_are_opened_are_refused_unopened(
    node: NodeProcess, new_topic: Callable[[], str]
) -> None:
    with RawClient(node.listen) as client:
        name = create_topic(client, new_topic(), cleanup_policy="compact")
        before = peak_mb(node)
        for _ in range(3):
            assert produce(client, name, many_tiny_records(2_000_000, 14)).error_code == MESSAGE_TOO_LARGE
        assert peak_mb(node) < before + 40
        assert produce(client, name, many_tiny_records(10, 7)).error_code == INVALID_RECORD


def test_an_unopened_batch_of_many_records_is_not_searched_by_time(
    node: NodeProcess, new_topic: Callable[[], str]
) -> None:
    """A topic that takes batches as they are takes such a one too; who looks for a time in it hears an error."""
    with RawClient(node.listen) as client:
        name = create_topic(client, new_topic())
        assert produce(client, name, many_tiny_records(5_000_000, 30)).error_code == 0
        before = peak_mb(node)
        wanted = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": 1}]}]
        (found,) = client.call("list_offsets", 6, topics=wanted).topics[0].partitions
        assert found.error_code == MESSAGE_TOO_LARGE
        assert peak_mb(node) < before + 40


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("compacts", [False, True])
def test_batches_of_every_codec_are_stored_in_the_topics(
    node: NodeProcess, new_topic: Callable[[], str], wanted: str, compacts: bool
) -> None:
    configs: dict[str, object] = {"cleanup_policy": "compact"} if compacts else {}
    records = [Record(i, 1000 + i, b"key-%d" % i, bytes([i % 256]) * 999) for i in range(700)]
    with RawClient(node.listen) as client:
        name = create_topic(client, new_topic(), compression_type=wanted, **configs)
        for codec in Compression:
            outcome = produce(client, name, encode_batch(records, codec=codec))
            assert outcome.error_code == 0, outcome.error_message
        data = fetched_partitions(client.call("fetch", 12, **fetch_fields(name, 0)))[0].records
    at = 0
    for number in range(len(Compression)):
        header = read_header(memoryview(data)[at:])
        assert header.codec == {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[wanted]
        read = decode_records(data[at : at + header.size_bytes], 64 * MB)
        assert [(each.offset, each.key, each.value) for each in read] == [
            (each.offset + 700 * number, each.key, each.value) for each in records
        ]
        at += header.size_bytes
    assert at == len(data)


def test_bombs_at_once_leave_the_node_with_its_memory(
    node: NodeProcess, new_topic: Callable[[], str]
) -> None:
    with RawClient(node.listen) as client:
        name = create_topic(client, new_topic(), cleanup_policy="compact")
        before = peak_mb(node)
        others = [RawClient(node.listen) for _ in range(4)]
        bomb = many_tiny_records(400_000, 60)
        for each in others:
            each.send("produce", 9, **_fields(name, bomb))
        for each in others:
            assert each.receive().responses[0].partition_responses[0].error_code in (
                MESSAGE_TOO_LARGE,
                INVALID_RECORD,
            )
            each.close()
        assert peak_mb(node) < before + 100
        wait_for(lambda: node.log_entries("request failed"), lambda lines: not lines, "nothing failed")


def _fields(name: str, batch: bytes) -> dict[str, object]:
    from support.raw_client import produce_fields

    return produce_fields(name, batch)
