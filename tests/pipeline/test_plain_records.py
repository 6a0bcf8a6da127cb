"""The fast way to read records and the full one: whatever the fast one takes, the full one finds the same."""

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from support.telemetry_corpus import corpus, plain_records
from support.telemetry_records import LOG_TIME, records_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")


def fast(values: "Sequence[bytes | None]") -> tuple[dict[int, dict[str, Any]], int, set[int]]:
    """Points by offset, the number of sentinels, and the offsets of the doubtful."""
    import pyarrow as pa

    from millstream.pipeline.job.plain.sift import Sieve
    from millstream.pipeline.job.reasons import Limits

    rows = len(values)
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"key"] * rows, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["telemetry"] * rows),
            "partition": pa.array([0] * rows, pa.int32()),
            "offset": pa.array(range(rows), pa.int64()),
            "timestamp": pa.array([LOG_TIME] * rows, pa.timestamp("us", tz="UTC")),
        }
    )
    sifted = Sieve(Limits(), LOG_TIME + timedelta(days=9)).sift(batch)
    sifted.points.validate(full=True)
    points = {point["source_offset"]: point for point in sifted.points.to_pylist()}
    return points, sifted.sentinels, set(sifted.doubtful.tolist())


def test_what_the_fast_way_takes_the_full_way_finds_the_same(spark: "SparkSession") -> None:
    from millstream.pipeline.job.batch import sifted_records
    from millstream.pipeline.job.judge import examined
    from millstream.pipeline.job.points import points_of
    from millstream.pipeline.job.reasons import Limits

    values = corpus(seed=11, mutations=2500)
    points, sentinels, doubtful = fast(values)
    rows = sifted_records(records_frame(spark, enumerate(values)), Limits()).cache()
    looked_at = examined(rows.filter("verdict = 'doubtful'"), Limits()).cache()
    expected: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in points_of(rows).unionByName(points_of(looked_at)).collect():
        expected[row.source_offset].append({name: row[name] for name in row.asDict() if name != "element"})
    dropped = [
        row.offset
        for frame in (rows, looked_at)
        for row in frame.filter("verdict = 'sentinel'").select("offset").collect()
    ]
    rows.unpersist()
    looked_at.unpersist()
    for offset, point in points.items():
        known = [{**each, "time": each["time"].astimezone(LOG_TIME.tzinfo)} for each in expected[offset]]
        assert known == [point], values[offset]
        # Equal is not the same for zeros.
        assert repr(known[0]["value"]) == repr(point["value"])
    taken = len(values) - len(points) - len(doubtful)
    assert taken == sentinels == len([offset for offset in dropped if offset not in doubtful])
    # The corpus is there to doubt, but the fast way must be worth having.
    assert len(points) > len(values) / 8


def test_what_streamers_send_is_plain() -> None:
    values = plain_records()
    points, sentinels, doubtful = fast(values)
    assert doubtful == set()
    assert len(points) + sentinels == len(values)
    assert sentinels == 1
