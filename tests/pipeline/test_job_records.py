"""Parsing and judging in Spark: every form of record is read, every mistake is named.

Spark takes seconds to plan what it does in a moment, so all records are looked at together, and each test at its own.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from millstream.pipeline.record import RecordForm, TelemetryRecord
from support.telemetry import BAD_RECORDS, SENTINELS, right_record
from support.telemetry_records import LOG_TIME, records_frame, telemetry_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.xdist_group("spark")

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
RECORD = TelemetryRecord(
    1772366400123, "DCGM_FI_DEV_GPU_UTIL", "GPU-5fd4f087", 42.5, "3", "nvidia3", "NVIDIA H100", "host-1", "trainer",
    "pod-1", "ml", 'DCGM_FI_DRIVER_VERSION="535.129.03"',
)  # fmt: skip


# Each form at a time of its own, or they would be one point.
FORMS = [
    *(RECORD.to_json(form, time_ms=RECORD.time_ms + 1000 * n) for n, form in enumerate(RecordForm)),
    b"["
    + RECORD.to_json(time_ms=RECORD.time_ms + 9000)
    + b","
    + telemetry_json(NOON, 7.0, uuid="GPU-2")
    + b"]",
]
UNUSUAL = [
    json.dumps(right_record(value="85.5")).encode(),
    json.dumps(right_record(uuid="a uuid of another make")).encode(),
    json.dumps(right_record(Hostname=None, hostname="lower-case")).encode(),
    json.dumps(right_record(Hostname=None, timestamp="2026-03-01T13:00:00.250+01:00", gpu_id=5)).encode(),
    json.dumps(right_record(timestamp="2026-03-01T12:00:01Z"), indent=2).encode() + b"\n",
]
ARRAY = b"[17," + telemetry_json(NOON, 1.0, uuid="GPU-3") + b",{}]"
EQUAL = [
    telemetry_json(NOON, 1.0, uuid="GPU-4"),
    telemetry_json(NOON, 2.0, uuid="GPU-4"),
    b"[" + telemetry_json(NOON, 3.0, uuid="GPU-4") + b"," + telemetry_json(NOON, 4.0, uuid="GPU-4") + b"]",
]
RECORDS: dict[str, list[bytes | None]] = {
    "mistakes": [record.data for record in BAD_RECORDS],
    "headers": [None, b"{}"],
    "sentinels": [json.dumps(right_record(value=value)).encode() for value in SENTINELS],
    "forms": [*FORMS],
    "unusual": [*UNUSUAL],
    "array": [ARRAY],
    "equal": [*EQUAL],
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of some records, by their places among them."""

    verdicts: "dict[int, str]"
    letters: "dict[int, Row]"
    points: "list[tuple[int, Row]]"


def judged(spark: "SparkSession", values: Sequence[bytes | None]) -> "tuple[DataFrame, DataFrame]":
    """The records by their types, and the odd ones as an examination of their text found them."""
    from millstream.pipeline.job import judge
    from millstream.pipeline.job.judge import Limits, typed_fields
    from millstream.pipeline.job.text import text_fields

    now = LOG_TIME + timedelta(days=9)
    rows = judge.judged(typed_fields(records_frame(spark, enumerate(values)), Limits()), Limits(), now)
    odd = text_fields(rows.filter("verdict = 'bad'"), Limits())
    return rows, judge.judged(odd, Limits(), now)


@pytest.fixture(scope="module")
def outcomes(spark: "SparkSession") -> dict[str, Outcome]:
    from millstream.pipeline.job.dead_letters import dead_letters
    from millstream.pipeline.job.judge import points_of, without_duplicates

    rows, looked_at = judged(spark, [value for values in RECORDS.values() for value in values])
    verdicts = {row.offset: row.verdict for row in rows.select("offset", "verdict").collect()}
    letters = {json.loads(row.value)["offset"]: row for row in dead_letters(looked_at).collect()}
    points = without_duplicates(points_of(rows).unionByName(points_of(looked_at)))
    found = points.orderBy("source_offset", "uuid").collect()

    parts, start = {}, 0
    for name, values in RECORDS.items():
        places = range(start, start + len(values))
        parts[name] = Outcome(
            {place - start: verdict for place, verdict in verdicts.items() if place in places},
            {place - start: letter for place, letter in letters.items() if place in places},
            [(point.source_offset - start, point) for point in found if point.source_offset in places],
        )
        start += len(values)
    return parts


def test_every_mistake_is_named(outcomes: dict[str, Outcome]) -> None:
    letters = {place: json.loads(row.value) for place, row in outcomes["mistakes"].letters.items()}
    found = {place: (letter["reason"], letter["field"]) for place, letter in letters.items()}
    assert found == {number: (record.reason, record.field) for number, record in enumerate(BAD_RECORDS)}
    for place, letter in letters.items():
        original = BAD_RECORDS[place].data
        kept = base64.b64decode(letter["original_base64"])
        assert original.startswith(kept)
        assert letter["truncated"] == (len(kept) < len(original))
        assert letter["original_bytes"] == len(original)
        assert letter["message"]
        assert (letter["topic"], letter["partition"]) == ("telemetry", 0)


def test_a_dead_letter_has_position_and_reason_as_headers(outcomes: dict[str, Outcome]) -> None:
    rows = outcomes["headers"].letters
    headers = {header.key: bytes(header.value).decode() for header in rows[1].headers}
    assert headers == {
        "reason": "missing_field", "field": "timestamp", "topic": "telemetry", "partition": "0",
        "offset": str(json.loads(rows[1].value)["offset"]),
    }  # fmt: skip
    assert bytes(rows[1].key) == b"key"
    assert json.loads(rows[0].value)["reason"] == "empty"


def test_all_forms_give_the_same_point(outcomes: dict[str, Outcome]) -> None:
    points = sorted(outcomes["forms"].points, key=lambda found: found[1].uuid == "GPU-2")
    *alike, (place, other) = points
    assert len(alike) == len(RecordForm) + 1
    for _, point in alike:
        assert (point.uuid, point.value, point.gpu_id, point.device) == ("GPU-5fd4f087", 42.5, "3", "nvidia3")
        assert (point.model_name, point.hostname, point.pod) == ("NVIDIA H100", "host-1", "pod-1")
    assert (other.value, place) == (7.0, len(RecordForm))


def test_unusual_but_right_records_are_points(outcomes: dict[str, Outcome]) -> None:
    found = dict(outcomes["unusual"].points)
    assert found[1].uuid == "a uuid of another make"
    # Of the three with one identity the last wins.
    assert set(found) == {1, 2, 3, 4}
    assert (found[2].hostname, found[3].hostname, found[3].gpu_id) == ("lower-case", "", "5")


def test_sentinels_are_dropped_and_are_no_mistakes(outcomes: dict[str, Outcome]) -> None:
    seen = outcomes["sentinels"]
    assert seen.verdicts == dict.fromkeys(range(len(SENTINELS)), "sentinel")
    assert (seen.letters, seen.points) == ({}, [])


def test_a_bad_element_does_not_spoil_its_array(outcomes: dict[str, Outcome]) -> None:
    letter = json.loads(outcomes["array"].letters[0].value)
    assert (letter["reason"], letter["element"], letter["bad_elements"]) == ("not_an_object", 0, 2)
    assert base64.b64decode(letter["original_base64"]) == ARRAY
    assert [point.value for _, point in outcomes["array"].points] == [1.0]


def test_the_last_of_equal_identities_wins(outcomes: dict[str, Outcome]) -> None:
    assert [point.value for _, point in outcomes["equal"].points] == [4.0]


def test_a_point_that_the_store_refused_is_a_dead_letter(spark: "SparkSession") -> None:
    from millstream.pipeline.job.dead_letters import rejected_letters
    from millstream.pipeline.stores.base import RejectedPoint

    data = [telemetry_json(NOON, value) for value in (1.0, 2.0)]
    refused = RejectedPoint(0, 1, "GPU-1", "DCGM_FI_DEV_GPU_UTIL", NOON, "field type conflict")
    rows, _ = judged(spark, data)
    [row] = rejected_letters(rows, [refused]).collect()
    letter = json.loads(row.value)
    assert (letter["reason"], letter["offset"], letter["topic"]) == ("rejected_by_store", 1, "telemetry")
    assert letter["message"].endswith("at 2026-03-01T12:00:00Z: field type conflict")
    assert base64.b64decode(letter["original_base64"]) == data[1]
    assert bytes(row.key) == b"key"


def test_a_dead_letter_fits_into_a_message_whatever_the_record_holds(spark: "SparkSession") -> None:
    from pyspark.sql import functions as f

    from millstream.pipeline.job.dead_letters import dead_letters, rejected_letters
    from millstream.pipeline.stores.base import RejectedPoint

    rows, looked_at = judged(spark, [b"[" * 1_000_000])
    long_key = f.repeat(f.lit("k"), 900_000).cast("binary")
    refused = RejectedPoint(0, 0, "u" * 500_000, "DCGM_FI_DEV_GPU_UTIL", NOON, "tag is too long")
    letters = [
        *dead_letters(looked_at.withColumn("key", long_key)).collect(),
        *rejected_letters(rows.withColumn("key", long_key), [refused]).collect(),
    ]
    assert len(letters) == 2
    for letter in letters:
        assert len(letter.key) + len(letter.value) < 900_000
        assert json.loads(letter.value)["original_bytes"] == 1_000_000
