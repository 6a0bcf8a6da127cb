"""Typed fields and text fields: a record whose typed value is taken would be judged the same by its text."""

import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from support.telemetry_corpus import corpus, plain_records
from support.telemetry_records import LOG_TIME, records_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

NOW = LOG_TIME + timedelta(days=9)
FINER_THAN_MICROSECONDS = re.compile(rb"\.\d{7,}")


def rows_of(frame: "DataFrame") -> dict[int, dict[str, Any]]:
    from millstream.pipeline.job.judge import points_of

    kept = {row.offset: row.verdict for row in frame.select("offset", "verdict").collect()}
    points = {row.source_offset: row.asDict() for row in points_of(frame).collect()}
    return {offset: {"verdict": verdict, **points.get(offset, {})} for offset, verdict in kept.items()}


def test_what_types_take_the_text_says_too(spark: "SparkSession") -> None:
    from millstream.pipeline.job.judge import Limits, judged, typed_fields
    from millstream.pipeline.job.text import text_fields

    values = corpus(seed=11, mutations=1500)
    records = records_frame(spark, enumerate(values))
    typed = rows_of(judged(typed_fields(records, Limits()), Limits(), NOW))
    taken = {offset: row for offset, row in typed.items() if row["verdict"] != "bad"}
    text = rows_of(judged(text_fields(records, Limits()), Limits(), NOW))
    different = {
        offset: (values[offset], row, text[offset])
        for offset, row in taken.items()
        if row != text[offset] and not _is_known(values[offset], row, text[offset])
    }
    assert not different, next(iter(different.values()))
    assert len(taken) > len(values) / 8


def _is_known(value: bytes | None, typed: dict[str, Any], text: dict[str, Any]) -> bool:
    """A time is rounded to microseconds or cut off. Types pass over a name that is not UTF-8, take the last of a name
    that comes twice, and know zones that the text does not."""
    assert value is not None
    if FINER_THAN_MICROSECONDS.search(value):
        return True
    if text["verdict"] != "bad":
        return False
    try:
        twice = _has_name_twice(value.decode())
    except UnicodeDecodeError:
        return True
    return twice or re.search(rb"[+-]\d\d(\d\d)?\"|[+-](1[89]|2\d):\d\d\"", value) is not None


def _has_name_twice(document: str) -> bool:
    found = False

    def members(pairs: list[tuple[str, object]]) -> dict[str, object]:
        nonlocal found
        found = found or len(dict(pairs)) < len(pairs)
        return dict(pairs)

    json.loads(document, object_pairs_hook=members)
    return found


def test_what_streamers_send_is_typed(spark: "SparkSession") -> None:
    from millstream.pipeline.job.judge import Limits, judged, typed_fields

    values = plain_records()
    found = rows_of(judged(typed_fields(records_frame(spark, enumerate(values)), Limits()), Limits(), NOW))
    odd = [values[offset] for offset, row in found.items() if row["verdict"] == "bad"]
    # An envelope, and a number in quotes, are read from the text.
    assert all(b'"headers"' in value or re.search(rb'"value"\s*:\s*"', value) for value in odd)
    assert len(odd) < len(values) / 2
