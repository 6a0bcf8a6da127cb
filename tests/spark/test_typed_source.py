"""Typed values through Spark, and held against Spark's own `from_json` on the same bytes."""

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the `spark` extra is not installed")

import pyarrow as pa
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from millstream.spark.typed.layout import layout_of
from millstream.spark.typed.rows import TypedRows
from support.node import NodeProcess

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

POINT = "value struct<id: bigint, name: string>, _corrupt_record binary, offset bigint"
RECORD = (
    "i: int, l: bigint, d: double, s: string, t: timestamp, day: date, x: binary, o: boolean, a: array<int>, "
    "m: map<string, int>, n: struct<p: int, q: string>"
)

DIFFERENCES: dict[str, Callable[[bytes], bool]] = {
    "nothing, or blanks": lambda doc: not doc.strip(),
    "bytes behind the document": lambda doc: _whole(doc) and not _alone(doc),
    "NaN, Infinity and numbers beyond doubles": lambda doc: bool(re.search(rb"NaN|Infinity|[eE]\d{3}", doc)),
    "a string field takes strings only": lambda doc: bool(re.search(rb'"[sq]"\s*:\s*[^"\sn]', doc)),
    "a time has a zone and all its parts": lambda doc: bool(re.search(rb'"t"\s*:\s*("\d{4}-|-?\d)', doc)),
    "a day is written with two digits, and alone": lambda doc: bool(re.search(rb'"day"\s*:\s*"\d{4}-', doc)),
    "single quotes": lambda doc: b"'" in doc,
    "half a surrogate pair": lambda doc: b"\\ud800" in doc,
    "bytes that are not UTF-8": lambda doc: not _is_utf8(doc),
}
"""Documents that Spark reads and we call malformed; docs/SPARK.md names them."""


def _is_utf8(doc: bytes) -> bool:
    try:
        doc.decode()
    except UnicodeDecodeError:
        return False
    return True


def _whole(doc: bytes) -> bool:
    """Whether a document is at the beginning."""
    try:
        json.JSONDecoder().raw_decode(doc.decode(errors="replace").lstrip())
    except ValueError:
        return False
    return True


def _alone(doc: bytes) -> bool:
    try:
        json.loads(doc.decode(errors="replace"))
    except ValueError:
        return False
    return True


@pytest.fixture
def topic(broker: NodeProcess, topic_with: Callable[..., str]) -> str:
    name = topic_with()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in (b'{"id": 1, "name": "one"}', b"rubbish", None, b'{"id": 2}'):
        producer.produce(name, value, b"key")
    assert producer.flush(90) == 0
    return name


def test_typed_rows_in_batches_and_streams(
    spark: SparkSession, broker: NodeProcess, topic: str, tmp_path: Path
) -> None:
    options = {
        "kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "value.format": "json",
        "startingOffsets": "earliest",
    }  # fmt: skip
    expected = [
        Row(value=Row(id=1, name="one"), _corrupt_record=None, offset=0),
        Row(value=None, _corrupt_record=bytearray(b"rubbish"), offset=1),
        Row(value=None, _corrupt_record=None, offset=2),
        Row(value=Row(id=2, name=None), _corrupt_record=None, offset=3),
    ]
    batch = spark.read.format("millstream").options(**options).schema(POINT).load()
    assert batch.orderBy("offset").collect() == expected
    stream = spark.readStream.format("millstream").options(**options).schema(POINT).load()
    query = (
        stream.writeStream.format("memory").queryName("typed").trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )  # fmt: skip
    assert query.awaitTermination(250)
    assert spark.table("typed").orderBy("offset").collect() == expected
    dropped = spark.read.format("millstream").options(**options, mode="DROPMALFORMED").schema(POINT).load()
    assert [row.offset for row in dropped.orderBy("offset").collect()] == [0, 2, 3]


def test_failfast_names_topic_partition_offset_and_reason(
    spark: SparkSession, broker: NodeProcess, topic: str
) -> None:
    reader = spark.read.format("millstream").option("kafka.bootstrap.servers", broker.bootstrap)
    frame = (
        reader.option("subscribe", topic)
        .option("value.format", "json")
        .option("mode", "FAILFAST")
        .schema(POINT)
    )
    with pytest.raises(PySparkException) as failed:
        frame.load().collect()
    assert f"the value at offset 1 of {topic}-0 does not fit: JSON is malformed" in str(failed.value)


def test_a_schema_that_does_not_fit_the_options_is_refused(spark: SparkSession, broker: NodeProcess) -> None:
    reader = spark.read.format("millstream").option("kafka.bootstrap.servers", broker.bootstrap)
    with pytest.raises(PySparkException, match=r"value\.format missing"):
        reader.option("subscribe", "any").schema(POINT).load().collect()


def documents(seed: int, count: int) -> Iterator[bytes]:
    """JSON of the record's fields with right and wrong values, some of it spoilt."""
    dice = random.Random(seed)
    scalars = [
        "1", "-7", "0", "1.0", "1e2", "3000000000", "99999999999999999999", "-0.0", "2.5", "1e999", "NaN",
        "true", "false", "null",
        '"x"', '""', '"5"', '"NaN"', '"caf\u00e9"', '"\\ud83d\\ude00"', '"\\ud800"', '"a\\nb"', '"aGk="',
        '"true"', '"2026-03-01"', '"2026-3-1"', '"2026-03-01T12:00:00Z"', '"2026-03-01T12:00:00.123456Z"',
        '"2026-03-01 13:00:00+01:00"', '"2026-03-01T12:00:00"', '"2026-13-01T12:00:00Z"', "[]", "[1, null, 2]",
        '["x"]', "{}", '{"k": 1}', '{"p": 1, "q": "y"}', '{"p": "x"}', "1772366400",
    ]  # fmt: skip
    names = ["i", "l", "d", "s", "t", "day", "x", "o", "a", "m", "n", "other", "I"]
    for _ in range(count):
        fields = dice.sample(names, dice.randint(0, 4))
        document = "{" + ", ".join(f'"{name}": {dice.choice(scalars)}' for name in fields) + "}"
        yield _spoilt(dice, document.encode())


def _spoilt(dice: random.Random, doc: bytes) -> bytes:
    match dice.randint(0, 19):
        case 0:
            return doc[: dice.randrange(len(doc))]
        case 1:
            return doc + dice.choice([b" rubbish", doc, b"\n", b",", b"\x00"])
        case 2:
            at = dice.randrange(len(doc))
            return doc[:at] + bytes([dice.randrange(256)]) + doc[at + 1 :]
        case 3:
            return dice.choice([b"", b"  ", b"null", b"17", b'"x"', b"[]", doc.replace(b'"', b"'")])
    return doc


def decoded(spark: SparkSession, docs: list[bytes]) -> tuple[list[Row], list[Row]]:
    """The same bytes by the typed source's decoder and by `from_json`."""
    schema = StructType.fromDDL(f"value struct<{RECORD}>, _corrupt_record binary, offset bigint")
    rows = len(docs)
    raw = pa.RecordBatch.from_pydict(
        {
            "key": pa.nulls(rows, pa.binary()),
            "value": pa.array(docs, pa.binary()),
            "offset": pa.array(range(rows), pa.int64()),
        }
    )
    made = TypedRows(layout_of({"value.format": "json"}, schema)).typed(raw)
    ours = spark.createDataFrame(pa.Table.from_batches([made]), schema).orderBy("offset").collect()
    record = f"struct<{RECORD}, _corrupt_record: string>"
    theirs = (
        spark.createDataFrame(pa.Table.from_batches([raw.select(["value", "offset"])]))
        .select("offset", f.from_json(f.col("value").cast("string"), record).alias("value"))
        .orderBy("offset")
        .collect()
    )
    return ours, theirs


def test_every_difference_from_from_json_has_a_name(spark: SparkSession) -> None:
    docs = [*documents(seed=5, count=3000), b"{'i': 1}", b'{"s": "\xff"}']
    found: set[str] = set()
    good = 0
    for doc, mine, row in zip(docs, *decoded(spark, docs), strict=True):
        theirs: dict[str, Any] = {} if row.value is None else row.value.asDict()
        theirs_is_bad = theirs.pop("_corrupt_record", None) is not None
        if mine._corrupt_record is None:
            assert not theirs_is_bad, doc
            assert mine.value.asDict() == theirs, doc
            good += 1
        elif not theirs_is_bad:
            named = {name for name, applies in DIFFERENCES.items() if applies(doc)}
            assert named, doc
            if len(named) == 1:
                found |= named
    assert good > len(docs) / 5
    assert found == set(DIFFERENCES)


def test_times_differ_in_the_last_digit_and_in_small_letters(spark: SparkSession) -> None:
    docs = [b'{"t": "2026-03-01T12:00:00.123456789Z"}', b'{"t": "2026-03-01t12:00:00z"}']
    (rounded, lower), (cut, refused) = decoded(spark, docs)
    assert (rounded.value.t.microsecond, cut.value.t.microsecond) == (123457, 123456)
    assert lower.value.t.hour == 12
    assert refused.value._corrupt_record is not None
