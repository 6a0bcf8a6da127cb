"""What other people's clients write, we read; what we write, they read; and the bytes are the same."""

from typing import Any

import aiokafka.record.default_records as aiokafka_records
import aiokafka.record.memory_records as aiokafka_memory
import kafka.record.default_records as kafka_records
import kafka.record.memory_records as kafka_memory
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.protocol.compression import Compression
from millstream.protocol.record_batch import CRC_START
from millstream.protocol.records import Record, decode_records, encode_batch

LIMIT = 10_000_000

# kafka-python needs python-snappy for snappy; aiokafka covers that codec.
KAFKA_PYTHON_CODECS: list[Compression] = [codec for codec in Compression if codec is not Compression.SNAPPY]

READERS: list[tuple[Any, Compression]] = [(kafka_memory, codec) for codec in KAFKA_PYTHON_CODECS]
READERS += [(aiokafka_memory, codec) for codec in Compression]
BUILDERS: list[tuple[Any, Compression]] = [
    (kafka_records.DefaultRecordBatchBuilder, codec) for codec in KAFKA_PYTHON_CODECS
]
BUILDERS += [(aiokafka_records.DefaultRecordBatchBuilder, codec) for codec in Compression]

messages = st.lists(
    st.tuples(
        st.integers(0, 2**50),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=5000),
        st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=30)), max_size=3),
    ),
    min_size=1,
    max_size=15,
)


def as_records(items: list[Any]) -> list[Record]:
    return [Record(i, ts, key, value, tuple(headers)) for i, (ts, key, value, headers) in enumerate(items)]


def built(builder_class: Any, codec: Compression, items: list[Any]) -> bytes:
    builder = builder_class(
        magic=2,
        compression_type=int(codec),
        is_transactional=1,
        producer_id=1234,
        producer_epoch=5,
        base_sequence=77,
        batch_size=2**30,
    )
    for offset, (timestamp, key, value, headers) in enumerate(items):
        assert builder.append(offset, timestamp=timestamp, key=key, value=value, headers=headers) is not None
    return bytes(builder.build())


@pytest.mark.parametrize(("builder_class", "codec"), BUILDERS)
@settings(max_examples=40, deadline=None)
@given(items=messages)
def test_what_a_client_writes_is_read(builder_class: Any, codec: Compression, items: list[Any]) -> None:
    assert decode_records(built(builder_class, codec, items), LIMIT) == as_records(items)


@pytest.mark.parametrize(
    "builder_class", [builder for builder, codec in BUILDERS if codec is Compression.NONE]
)
@settings(max_examples=80, deadline=None)
@given(items=messages)
def test_uncompressed_batches_are_the_same_bytes(builder_class: Any, items: list[Any]) -> None:
    ours = encode_batch(
        as_records(items), producer_id=1234, producer_epoch=5, base_sequence=77, transactional=True
    )
    theirs = built(builder_class, Compression.NONE, items)
    assert ours[CRC_START - 4 :] == theirs[CRC_START - 4 :]
    assert ours[:12] == theirs[:12]


@pytest.mark.parametrize(("reader", "codec"), READERS)
@settings(max_examples=40, deadline=None)
@given(items=messages)
def test_what_we_write_is_read_by_a_client(reader: Any, codec: Compression, items: list[Any]) -> None:
    expected = [
        Record(1000 + record.offset, record.timestamp_ms, record.key, record.value, record.headers)
        for record in as_records(items)
    ]
    batch = reader.MemoryRecords(encode_batch(expected, codec=codec, base_offset=1000)).next_batch()
    assert batch is not None
    assert batch.validate_crc()
    found = [Record(each.offset, each.timestamp, each.key, each.value, tuple(each.headers)) for each in batch]
    assert found == expected
